"""Prompt lookup: what followed the last few tokens the last time they occurred is proposed again.

Knows only the text so far and an optional reference text; costs no model pass. Source: Saxena, "Prompt Lookup
Decoding" (2023); the same idea is called n-gram speculation elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outrider.drafters.base import DraftContext, Drafter, TargetView
from outrider.errors import OptionError, PairingError
from outrider.types import DraftTree

Gram = tuple[int, ...]


@dataclass
class LookupDrafter(Drafter):
    """Copies the continuation of the longest, then latest, earlier occurrence of the text's last n-gram.

    max_ngram, min_ngram: lengths tried, longest first. lookup_text: a text to look up in beside the prompt, which the
    target never reads; used where the text itself has no match.
    """

    name: ClassVar[str] = "lookup"
    free: ClassVar[bool] = True
    preferred_depth: ClassVar[int] = 10

    max_ngram: int = 3
    min_ngram: int = 1
    lookup_text: str | Sequence[int] | None = None
    _index: dict[int, "NgramIndex"] = field(default_factory=dict[int, "NgramIndex"], init=False, repr=False)
    _reference: "NgramIndex | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        for option in ("max_ngram", "min_ngram"):
            value = getattr(self, option)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{option} is {value!r}; it must be a whole number of at least 1")
        if self.min_ngram > self.max_ngram:
            raise OptionError(f"min_ngram is {self.min_ngram}, above max_ngram {self.max_ngram}")

    def bind(self, target: TargetView) -> None:
        if self.lookup_text is None:
            return
        if isinstance(self.lookup_text, str):
            if target.tokenizer is None:
                raise PairingError("lookup_text is a string but the target has no tokenizer; give token ids")
            tokens = target.tokenizer.encode(self.lookup_text, add_special_tokens=False)
        else:
            tokens = list(self.lookup_text)
        self._reference = NgramIndex(self.min_ngram, self.max_ngram)
        self._reference.extend(tokens)

    def begin(self, row: int, tokens: Sequence[int]) -> None:
        self._index[row] = NgramIndex(self.min_ngram, self.max_ngram)

    def end(self, row: int) -> None:
        self._index.pop(row, None)

    def propose_row(self, context: DraftContext) -> DraftTree:
        index = self._index[context.row]
        index.extend(context.tokens[len(index.tokens) :])
        limit = min(context.plan.max_depth, context.plan.max_nodes)
        tail = context.tokens[-self.max_ngram :]
        found = index.continuation(tail, limit, inner=True)
        if not found and self._reference is not None:
            found = self._reference.continuation(tail, limit, inner=False)
        return DraftTree.chain(context.root, found)


class NgramIndex:
    """Where every n-gram of a growing text last ended, and where it ended before that."""

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self.tokens: list[int] = []
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._last: dict[Gram, tuple[int, int]] = {}  # n-gram: (end of the latest occurrence, of the one before)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.tokens.append(token)
            end = len(self.tokens)
            for size in self._sizes:
                if size <= end:
                    gram = tuple(self.tokens[end - size :])
                    self._last[gram] = (end, self._last.get(gram, (0, 0))[0])

    def continuation(self, tail: Sequence[int], limit: int, *, inner: bool) -> list[int]:
        """What followed `tail`'s longest known n-gram. inner: the tail is this text's own end, so look before it."""
        for size in self._sizes:
            if size <= len(tail):
                latest, before = self._last.get(tuple(tail[-size:]), (0, 0))
                end = before if inner else latest
                if end and end < len(self.tokens):
                    return self._copy(end, limit, repeat=inner)
        return []

    def _copy(self, start: int, limit: int, *, repeat: bool) -> list[int]:
        """`limit` tokens from `start`; a text that repeats itself up to its end is taken to go on repeating."""
        period = len(self.tokens) - start
        count = limit if repeat else min(limit, period)
        return [self.tokens[start + i % period] for i in range(count)]
