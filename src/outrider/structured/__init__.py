"""Text that must obey a grammar: JSON of a schema, a regular expression, one of several choices, a Lark grammar.

Illegal tokens are impossible; nothing is mended."""

from outrider.structured.grammar import Grammar, GrammarCompiler
from outrider.structured.make import Structure, Structured
from outrider.structured.processor import GrammarProcessor

__all__ = ["Grammar", "GrammarCompiler", "GrammarProcessor", "Structure", "Structured"]
