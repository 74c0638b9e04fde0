"""A grammar as a logits processor: whatever is not legal after the text so far becomes impossible.

The engine calls it once per written token with the committed text and the drafted path, so a draft token that breaks
the grammar is simply never chosen. It follows the text by difference: if the text it is shown is not a continuation of
the last one (a round was repeated, a draft was looked at), it goes back to where they part. It also guides drafts
(drafters/guide.py): what it forbids is not drafted, and what it leaves no choice about is.
"""

import math

from jaxtyping import Float
from torch import Tensor

from outrider.structured.grammar import Grammar


class GrammarProcessor:
    """logits -> logits with illegal tokens at -inf. num_prompt: tokens of the text that the grammar does not cover."""

    def __init__(self, grammar: Grammar, num_prompt: int) -> None:
        self._grammar = grammar
        self._num_prompt = num_prompt
        self._followed: list[int] = []

    def __call__(self, tokens: list[int], logits: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
        """What may follow the text. Raises OptionError where the grammar becomes too complex to follow."""
        self._follow(tokens[self._num_prompt :])
        legal = self._grammar.legal(len(logits)).to(logits.device)
        return logits.masked_fill(~legal, -math.inf)

    def allows(self, tokens: list[int], token: int) -> bool:
        """See `Guide.allows`."""
        return self._follow(tokens[self._num_prompt :]) and self._grammar.allows(token)

    def forced(self, tokens: list[int], limit: int) -> list[int]:
        """See `Guide.forced`."""
        found: list[int] = []
        if not self._follow(tokens[self._num_prompt :]):
            return found
        while len(found) < limit and (more := self._grammar.forced()):
            for token in more[: limit - len(found)]:
                if not self._grammar.allows(token):
                    return found
                found.append(token)
                if not self._grammar.advance(token):
                    return found
                self._followed.append(token)
        return found

    def _follow(self, written: list[int]) -> bool:
        """Stand after this text; False if the grammar ends before it does."""
        shared = _common(self._followed, written)
        self._grammar.back(len(self._followed) - shared)
        del self._followed[shared:]
        for token in written[shared:]:
            if not self._grammar.advance(token):
                return False  # past the grammar's end (only with ignored end tokens): end tokens remain legal
            self._followed.append(token)
        return True


def _common(one: list[int], other: list[int]) -> int:
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(i for i in range(size) if one[i] != other[i])
