"""Text that must obey a grammar: JSON, or JSON of one schema. Illegal tokens are impossible; nothing is mended."""

from outrider.structured.grammar import Grammar, GrammarCompiler
from outrider.structured.processor import GrammarProcessor

__all__ = ["Grammar", "GrammarCompiler", "GrammarProcessor"]
