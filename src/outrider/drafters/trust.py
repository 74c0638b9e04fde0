"""How far past predictions of a kind came true: turns a raw estimate into a calibrated chance, and keeps learning.

Kinds are small integers (a match length's bucket, a candidate's rank). The calibrated chance is the raw one times
(what came true + prior) / (what was predicted + prior), cut to at most 0.999.
"""

from collections.abc import Sequence


class Trust:
    """prior[kind]: trust before any evidence; weight: how many predictions the prior is worth."""

    def __init__(self, prior: Sequence[float], weight: float = 8.0, memory: float = 200.0) -> None:
        self._true = [p * weight for p in prior]
        self._said = [weight for _ in prior]
        self._memory = memory

    def chance(self, kind: int, raw: float) -> float:
        return min(0.999, raw * self._true[kind] / self._said[kind])

    def learn(self, kind: int, raw: float, came_true: bool) -> None:
        """One prediction of chance `raw`, and whether it came true. Old evidence fades once `memory` is reached."""
        if self._said[kind] > self._memory:
            self._said[kind] *= 0.5
            self._true[kind] *= 0.5
        self._said[kind] += raw
        self._true[kind] += came_true
