"""How many of the offered nodes are worth a place in the common pass, over all rows at once.

A round of B rows that scores n drafted nodes with survivals s_1 >= s_2 >= ... writes B + s_1 + ... + s_n tokens in
seconds(B + n) + spent. Time is worth tokens: a second that is spent could have written `worth` of them otherwise. The
best n makes tokens - worth * seconds greatest (Dinkelbach, 1967: with worth = the speed reached, this is the fastest
that can be), and it is found by looking at every n, because a pass may grow in steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDS = 3  # of judging again; the speed rises in each, and is all but reached in two


@dataclass(frozen=True)
class Cut:
    """The best number of drafted nodes, what the round then writes, and what it takes."""

    num_nodes: int
    tokens: float
    seconds: float

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def survivals(parents: Sequence[int], chances: Sequence[float]) -> list[float]:
    """The chance that each node of a tree is kept: the product of chances on its way from the root (whose own is 1)."""
    alive = [1.0] * len(parents)
    for node in range(1, len(parents)):
        alive[node] = alive[parents[node]] * chances[node]
    return alive


def best_cut(
    alive: Sequence[float],
    num_rows: int,
    seconds: Callable[[int], float],
    *,
    worth: float,
    spent: float = 0.0,
) -> Cut:
    """alive: survivals of all offered nodes, greatest first. seconds(N): of a pass over N nodes.

    Where the round itself turns out faster than what time was worth, it is judged again by its own speed.
    """
    cut = _cut(alive, num_rows, seconds, worth, spent)
    for _ in range(ROUNDS):
        if cut.speed <= worth * 1.001:
            break
        worth = cut.speed
        cut = _cut(alive, num_rows, seconds, worth, spent)
    return cut


def _cut(alive: Sequence[float], num_rows: int, seconds: Callable[[int], float], worth: float, spent: float) -> Cut:
    tokens, best = float(num_rows), Cut(0, float(num_rows), seconds(num_rows) + spent)
    best_value = best.tokens - worth * best.seconds
    for count, chance in enumerate(alive, 1):
        tokens += chance
        took = seconds(num_rows + count) + spent
        if tokens - worth * took > best_value + 1e-12:
            best, best_value = Cut(count, tokens, took), tokens - worth * took
    return best
