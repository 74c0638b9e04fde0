"""How often tokens are kept, by who proposed them and what each of them said of its own token: learned as it goes.

A drafter's estimate is corrected by how its estimates of that size, at that depth, came true so far. Where several
drafters agree on a token, their corrected estimates are joined as if they erred independently, and the set of them is
a source of its own, whose joint estimate is corrected in the same way (they do not err independently).
"""

import math
from bisect import bisect
from collections.abc import Mapping

from outrider.drafters.trust import Trust

SIZES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)  # borders between estimates of one kind and the next
DEPTHS = (2, 4)  # likewise for depths, counted from 1
NUM_KINDS = (len(SIZES) + 1) * (len(DEPTHS) + 1)
WEIGHT = 3.0  # evidence that the belief in a drafter's own estimates is worth


class Calibration:
    """The record of one request. Parts are numbered; `said` is what each proposing part estimated, by its number."""

    def __init__(self) -> None:
        self._trusts: dict[tuple[int, ...], Trust] = {}

    def chance(self, said: Mapping[int, float], depth: int) -> float:
        """Calibrated chance that the token is kept if the one before it is. depth: of the token, from 1."""
        source, raw = self._joint(said, depth)
        return self._trust(source).chance(_kind(raw, depth), raw)

    def alone(self, part: int, raw: float, depth: int) -> float:
        """The same if `part` were the only one to propose it."""
        return self._trust((part,)).chance(_kind(raw, depth), raw)

    def learn(self, said: Mapping[int, float], depth: int, came_true: bool) -> None:
        """A token was judged: kept or not, the one before it having been kept."""
        source, joint = self._joint(said, depth)
        for part, raw in said.items():
            self._trust((part,)).learn(_kind(raw, depth), raw, came_true)
        if len(source) > 1:
            self._trust(source).learn(_kind(joint, depth), joint, came_true)

    def _joint(self, said: Mapping[int, float], depth: int) -> tuple[tuple[int, ...], float]:
        """Who proposed it, and their estimates as one: a single one as it is, several corrected and joined."""
        if len(said) == 1:
            part, raw = next(iter(said.items()))
            return (part,), raw
        fails = math.prod(1.0 - self.alone(part, raw, depth) for part, raw in said.items())
        return tuple(sorted(said)), 1.0 - fails

    def _trust(self, source: tuple[int, ...]) -> Trust:
        if source not in self._trusts:
            self._trusts[source] = Trust([1.0] * NUM_KINDS, weight=WEIGHT)
        return self._trusts[source]


def _kind(raw: float, depth: int) -> int:
    return bisect(SIZES, raw) * (len(DEPTHS) + 1) + bisect(DEPTHS, depth)
