"""From what a user writes (a schema, a pattern, choices, a grammar) to the processor of one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.engine.request import Prompt, encode_prompt
from outrider.errors import OptionError, UnsupportedError
from outrider.structured.grammar import Grammar, GrammarCompiler
from outrider.structured.processor import GrammarProcessor
from outrider.targets.base import Target


@dataclass(frozen=True)
class Structure:
    """What a text must be: exactly one of these is given. choice: the text is one of these. lark: a Lark grammar."""

    json_schema: Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    lark: str | None = None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise OptionError(f"give one of json_schema, regex, choice, lark; {found} was given")

    def compile(self, compiler: GrammarCompiler) -> Grammar:
        """Raises OptionError where it cannot be enforced."""
        if self.regex is not None:
            return compiler.regex(self.regex)
        if self.choice is not None:
            return compiler.choice(self.choice)
        if self.lark is not None:
            return compiler.lark(self.lark)
        assert self.json_schema is not None
        return compiler.json_schema(self.json_schema)


class Structured:
    """Structured output for one target. Making it reads the whole vocabulary (a second or two), so keep it.

    structured = Structured(engine.target)
    engine.generate(prompt, logits_processors=[structured.processor(prompt, regex="[0-9]{4}")])
    """

    def __init__(self, target: Target) -> None:
        if target.tokenizer is None:
            raise UnsupportedError("structured output needs a target with a tokenizer")
        self._target = target
        self._compiler = GrammarCompiler(target.tokenizer, target.info.vocab_size, target.info.eos_token_ids)

    def processor(self, prompt: Prompt, **structure: Any) -> GrammarProcessor:
        """For one request with this very prompt; options as in `Structure`. Raises OptionError, PromptError."""
        grammar = Structure(**structure).compile(self._compiler)
        tokens = encode_prompt(prompt, self._target.tokenizer, self._target.info)
        return GrammarProcessor(grammar, len(tokens))
