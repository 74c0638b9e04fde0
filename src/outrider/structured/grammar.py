"""Compiles grammars for one tokenizer. This is the only file that knows llguidance, the library that does the work.

A grammar says after every prefix which tokens may come next. At its end only the model's end tokens may.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from outrider.errors import OptionError, UnsupportedError

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
WHITESPACE = r" |\n[ \t]{0,40}"  # one space, or one line break and its indentation: small models write blanks for ever


class GrammarCompiler:
    """Makes grammars for a tokenizer: the transformers tokenizer inside an `HFTokenizer`, or tokenizers' JSON text.

    Making one reads the whole vocabulary (a second or two), so keep it. Raises UnsupportedError where the tokenizer is
    not a fast one, or the library is not installed.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, end_token_ids: Sequence[int]) -> None:
        if not end_token_ids:
            raise UnsupportedError("structured output needs a model with an end token; this one has none")
        self._library = _library()
        self.end_token_ids = tuple(end_token_ids)
        try:
            self._tokenizer = self._library.LLTokenizer(_as_json(tokenizer), vocab_size, list(end_token_ids))
        except ValueError as error:
            raise UnsupportedError(f"structured output cannot read this tokenizer: {error}") from error

    def json_object(self) -> "Grammar":
        """Any JSON object."""
        return self.json_schema(ANY_OBJECT)

    def json_schema(self, schema: Mapping[str, Any] | bool) -> "Grammar":
        """JSON that satisfies the schema. Raises OptionError if it is no schema, or uses what cannot be enforced."""
        text = self._library.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE}
        )
        matcher = self._library.LLMatcher(self._tokenizer, text, log_level=0)
        if matcher.is_error():
            raise OptionError(f"the JSON schema cannot be enforced: {_first_line(matcher.get_error())}")
        return Grammar(matcher, self.end_token_ids)


class Grammar:
    """Where one text stands in its grammar. `advance` and `back` move it; end tokens are legal at the grammar's end."""

    def __init__(self, matcher: Any, end_token_ids: Sequence[int]) -> None:
        self._matcher = matcher
        self._end_token_ids = list(end_token_ids)

    def fresh(self) -> "Grammar":
        """The same grammar at its beginning, independent of this one."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        return Grammar(matcher, self._end_token_ids)

    def advance(self, token_id: int) -> bool:
        """One token further; False, and nothing changed, if it is not legal here (or the grammar has ended)."""
        if self._matcher.is_stopped() or self._matcher.validate_tokens([token_id]) == 0:
            return False
        return bool(self._matcher.consume_token(token_id))

    def back(self, count: int) -> None:
        """Undo the last `count` tokens."""
        if count and not self._matcher.rollback(count):
            raise OptionError(f"the grammar cannot go back {count} tokens: {_first_line(self._matcher.get_error())}")

    def legal(self, vocab_size: int) -> Bool[Tensor, "V"]:
        """Which tokens may come next."""
        if self._matcher.is_stopped():
            return self._only_end(vocab_size)
        allowed = torch.frombuffer(bytearray(self._matcher.compute_logit_bias()), dtype=torch.uint8) > 0
        if self._matcher.is_error():
            raise OptionError(f"the grammar is too complex to follow: {_first_line(self._matcher.get_error())}")
        return allowed[:vocab_size]

    def _only_end(self, vocab_size: int) -> Bool[Tensor, "V"]:
        mask = torch.zeros(vocab_size, dtype=torch.bool)
        mask[self._end_token_ids] = True
        return mask


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise UnsupportedError("structured output needs llguidance: pip install 'outrider[server]'") from error
    return llguidance


def _as_json(tokenizer: Any) -> str:
    if isinstance(tokenizer, str):
        return tokenizer
    backend = getattr(getattr(tokenizer, "inner", tokenizer), "backend_tokenizer", None)
    if backend is None:
        raise UnsupportedError("structured output needs a fast tokenizer (tokenizer.json); this model has none")
    return backend.to_str()


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
