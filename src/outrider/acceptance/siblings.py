"""Accept-or-resample arithmetic for the children of one node: plain mathematics, no randomness.

Laws are one-dimensional torch tensors, or numpy object arrays of fractions (the tests prove exactness with those,
through this very code). Sources: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2; for siblings
Miao et al. 2024 (SpecInfer) and Jeon et al. 2024.
"""

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Law = TypeVar("Law", Tensor, NDArray[np.object_])


class SiblingTest(Generic[Law]):
    """Judges siblings in node order; `remaining` is the law of the next token once those judged so far are rejected.

    target: the law after the parent node. draft: the law from which the siblings were drawn, without replacement;
    None if they were chosen, so that each has a point mass as its law. Neither is changed.
    `exhausted`: a token was rejected although target and draft are equal, which only rounding can do; `remaining`
    is then the target's law again, and the siblings left should not be judged.
    """

    def __init__(self, target: Law, draft: Law | None) -> None:
        self.remaining = target
        self.exhausted = False
        self._target = target
        self._draft = draft

    def chance(self, token: int) -> Any:
        """Chance that the next sibling, which holds `token`, is kept: min(1, remaining / draft)."""
        kept: Any = self.remaining[token]
        draft = drawn_law(self._draft, token)
        return kept if draft is None else min(1, kept / draft[token])

    def reject(self, token: int) -> None:
        """Go on after the rejection of a sibling that holds `token`."""
        excess = excess_of(self.remaining, self._draft, token)
        mass: Any = excess.sum()
        self.exhausted = not mass > 0
        self.remaining = self._target if self.exhausted else excess / mass
        if self._draft is not None:
            self._draft = _normalised(without(self._draft, token))


def drawn_law(draft: Law | None, token: int) -> Law | None:
    """`draft`, or None, a point mass, if `token` has no chance under it.

    A younger sibling may have a chance too small for the floats of draft_probs. To judge it as a token that was
    chosen is exact, for that is exact however a token came about; it only keeps fewer.
    """
    return draft if draft is not None and draft[token] > 0 else None


def excess_of(target: Law, draft: Law | None, token: int) -> Law:
    """What `target` has in excess of the law that `token` was drawn from: their difference's positive part."""
    drawn = drawn_law(draft, token)
    difference: Any = None if drawn is None else target - drawn
    return without(target, token) if difference is None else difference.clip(min=0)


def without(law: Law, token: int) -> Law:
    """A copy of `law` with no mass on `token`; not normalised."""
    rest = law.clone() if isinstance(law, Tensor) else law.copy()
    rest[token] = 0
    return rest


def _normalised(weights: Law) -> Law:
    mass: Any = weights.sum()
    return weights / mass if mass > 0 else weights
