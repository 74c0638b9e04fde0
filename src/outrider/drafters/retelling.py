"""One model's tokens told in another model's, through the text that both can read; and the way back.

Texts only grow, so most of what was told stays as it was: a stretch of tokens is settled once its end is a place where
both tokenizers cut, so that the rest can be told alone and the cost of a round does not grow with the text.
"""

from collections.abc import Sequence

from outrider.targets.base import Tokenizer

UNKNOWN = "\ufffd"
SETTLE_AT = 96  # tokens told anew in every round before a part of them is settled
CONTEXTS = (16, 4, 1, 0)  # tokens before a proposal with which its tokens are looked for


class Retelling:
    """One row's text in `goal`'s tokens. Special tokens that the goal does not know are left out."""

    def __init__(self, source: Tokenizer, goal: Tokenizer) -> None:
        self._source = source
        self._goal = goal
        self._known = goal.vocabulary()
        self._silent: dict[int, bool] = {}
        self._num_settled = 0
        self._settled = goal.encode("")  # what the goal begins every text with, if anything

    def tell(self, tokens: Sequence[int]) -> list[int] | None:
        """The goal's ids of the whole text, or None where it ends within a character. `tokens` must only grow."""
        ids = self._ids(tokens, self._num_settled, len(tokens))
        if ids is None:
            return None
        told = [*self._settled, *ids]
        if len(tokens) - self._num_settled > SETTLE_AT:
            self._settle(tokens, ids)
        return told or None

    def _ids(self, tokens: Sequence[int], start: int, end: int) -> list[int] | None:
        text = self._text(tokens, start, end)
        return None if text.endswith(UNKNOWN) else self._goal.encode(text, add_special_tokens=False)

    def _text(self, tokens: Sequence[int], start: int, end: int) -> str:
        """Text of tokens[start:end] as it reads after what stands before them."""
        spoken = [token for token in tokens[start:end] if not self._is_silent(token)]
        before = [token for token in tokens[max(0, start - 1) : start] if not self._is_silent(token)]
        lead, text = _decode(self._source, before), _decode(self._source, [*before, *spoken])
        return text[len(lead) :] if text.startswith(lead) else _decode(self._source, spoken)

    def _settle(self, tokens: Sequence[int], ids: Sequence[int]) -> None:
        """Move on to a place near the middle where the ids of the two parts are the ids of the whole."""
        start, end = self._num_settled, len(tokens)
        middle = (start + end) // 2
        for place in range(middle, max(start, middle - 8), -1):
            first, second = self._ids(tokens, start, place), self._ids(tokens, place, end)
            if first is not None and second is not None and [*first, *second] == list(ids):
                self._settled += first
                self._num_settled = place
                return

    def _is_silent(self, token: int) -> bool:
        """A special token of the source that the goal's vocabulary lacks."""
        if token not in self._silent:
            text = _decode(self._source, [token])
            special = bool(text) and not self._source.decode([token], skip_special_tokens=True)
            self._silent[token] = special and text not in self._known
        return self._silent[token]


def told_back(target: Tokenizer, tokens: Sequence[int], text: str) -> list[int]:
    """The target's tokens of `text` right after `tokens`; [] if no way of cutting it gives exactly that text."""
    for count in CONTEXTS:
        context = list(tokens[len(tokens) - min(count, len(tokens)) :])
        head = _decode(target, context)
        ids = target.encode(head + text, add_special_tokens=False)
        new = ids[len(context) :]
        if ids[: len(context)] == context and new and _decode(target, [*context, *new]) == head + text:
            return new
    return []


def _decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    return tokenizer.decode(list(tokens), skip_special_tokens=False)
