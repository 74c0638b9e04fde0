"""Compiles grammars for one tokenizer. This is the only file that knows llguidance, the library that does the work.

A grammar says after every prefix which tokens may come next. At its end only the model's end tokens may.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from outrider.errors import OptionError, UnsupportedError

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
WHITESPACE = r" |\n[ \t]{0,40}"  # one space, or one line break and its indentation: small models write blanks for ever


@runtime_checkable
class Spelled(Protocol):
    """A tokenizer that tells every token's bytes, and which tokens are marks and no text."""

    def pieces(self) -> Sequence[bytes]: ...

    def special_ids(self) -> Sequence[int]: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...


class GrammarCompiler:
    """Makes grammars for a tokenizer: a Spelled one, an `HFTokenizer` around a fast one, or tokenizers' JSON text.

    Making one reads the whole vocabulary (a second or two), so keep it. Raises UnsupportedError where the tokenizer is
    not a fast one, or the library is not installed.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, end_token_ids: Sequence[int]) -> None:
        if not end_token_ids:
            raise UnsupportedError("structured output needs a model with an end token; this one has none")
        self._library = _library()
        self.end_token_ids = tuple(end_token_ids)
        try:
            self._tokenizer = self._library.LLTokenizer(
                _readable(tokenizer, end_token_ids[0]), vocab_size, list(end_token_ids)
            )
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
        return self._compile(text, "JSON schema")

    def regex(self, pattern: str) -> "Grammar":
        """Text that the regular expression matches as a whole (Rust's syntax). Raises OptionError."""
        return self._compile(self._library.LLMatcher.grammar_from_regex(pattern), "regular expression")

    def choice(self, texts: Sequence[str]) -> "Grammar":
        """One of these texts. Raises OptionError if there is none, or an empty one."""
        if isinstance(texts, str) or not texts or not all(texts):
            raise OptionError(f"a choice needs a list of texts that are not empty, not {texts!r}")
        rules = " | ".join(json.dumps(text, ensure_ascii=False) for text in dict.fromkeys(texts))
        return self._compile(self._library.LLMatcher.grammar_from_lark(f"start: {rules}"), "choice")

    def lark(self, grammar: str) -> "Grammar":
        """Text of a grammar in Lark's syntax, as llguidance reads it; its first rule is `start`. Raises OptionError."""
        return self._compile(self._library.LLMatcher.grammar_from_lark(grammar), "grammar")

    def _compile(self, text: str, what: str) -> "Grammar":
        matcher = self._library.LLMatcher(self._tokenizer, text, log_level=0)
        if matcher.is_error():
            raise OptionError(f"the {what} cannot be enforced: {_first_line(matcher.get_error())}")
        return Grammar(matcher, self.end_token_ids, self._tokenizer.tokenize_bytes)


class Grammar:
    """Where one text stands in its grammar. `advance` and `back` move it; end tokens are legal at the grammar's end.

    The matcher is never given an end token, for it could not go back from there. tokenize: bytes to token ids.
    """

    def __init__(
        self, matcher: Any, end_token_ids: Sequence[int], tokenize: Callable[[bytes], list[int]] | None = None
    ) -> None:
        self._matcher = matcher
        self._end_token_ids = list(end_token_ids)
        self._tokenize = tokenize
        self._ended = False

    def fresh(self) -> "Grammar":
        """The same grammar at its beginning, independent of this one."""
        matcher = self._matcher.deep_copy()
        matcher.reset()
        return Grammar(matcher, self._end_token_ids, self._tokenize)

    def allows(self, token_id: int) -> bool:
        """Whether this token may come next. Nothing comes after an end token."""
        if self._ended:
            return False
        if self._matcher.is_stopped():
            return token_id in self._end_token_ids
        return self._matcher.validate_tokens([token_id]) == 1

    def forced(self) -> list[int]:
        """What the grammar leaves no choice about, as the tokenizer would write it; often nothing.

        Where a longer or shorter token fits the same text this is a good guess, no more.
        """
        if self._ended:
            return []
        if self._matcher.is_stopped():
            return self._end_token_ids[:1]
        tokens: list[int] = self._matcher.compute_ff_tokens()
        if not tokens and self._tokenize and (forced := self._matcher.compute_ff_bytes()):
            tokens = self._tokenize(forced)
        return tokens

    def advance(self, token_id: int) -> bool:
        """One token further; False, and nothing changed, if it is not legal here (or the grammar has ended)."""
        if self._matcher.is_stopped() or not self.allows(token_id):
            return False
        if token_id in self._end_token_ids:
            self._ended = True
            return True
        return bool(self._matcher.consume_token(token_id))

    def back(self, count: int) -> None:
        """Undo the last `count` tokens."""
        if count and self._ended:
            self._ended, count = False, count - 1
        if count and not self._matcher.rollback(count):
            raise OptionError(f"the grammar cannot go back {count} tokens: {_first_line(self._matcher.get_error())}")

    def legal(self, vocab_size: int) -> Bool[Tensor, "V"]:
        """Which tokens may come next."""
        if self._ended or self._matcher.is_stopped():
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
        raise UnsupportedError("structured output needs llguidance: pip install llguidance") from error
    return llguidance


class _Wrapped:
    """A Spelled tokenizer under the names that llguidance reads."""

    def __init__(self, tokenizer: Spelled, end_token_id: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id, self.bos_token_id = end_token_id, None
        self.tokens, self.special_token_ids = list(tokenizer.pieces()), list(tokenizer.special_ids())

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode(errors="replace"), add_special_tokens=False)


def _readable(tokenizer: Any, end_token_id: int) -> Any:
    """What llguidance takes. Raises UnsupportedError."""
    if isinstance(tokenizer, str):
        return tokenizer
    if isinstance(tokenizer, Spelled):
        return _library().TokenizerWrapper(_Wrapped(tokenizer, end_token_id))
    backend = getattr(getattr(tokenizer, "inner", tokenizer), "backend_tokenizer", None)
    if backend is None:
        raise UnsupportedError("structured output needs a fast tokenizer (tokenizer.json); this model has none")
    return backend.to_str()


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
