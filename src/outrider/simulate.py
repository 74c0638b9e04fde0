"""What speculation should bring: the yield formula, its cost model, and a simulation that does not use the formula.

All costs are in target passes (one pass over one node is 1). Source: Leviathan et al. 2023, equation 1 and theorem
3.8; the growth of the pass with its width and our own overhead are added.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.errors import OptionError


def expected_tokens(acceptance: float, depth: int) -> float:
    """Tokens per round when each drafted token is kept with chance `acceptance`, given that all before it were.

    (1 - a^(k+1)) / (1 - a) for a chain of k: the kept ones and the one that the target adds itself.
    """
    _check(acceptance, depth)
    if acceptance == 1:
        return depth + 1.0
    return (1 - acceptance ** (depth + 1)) / (1 - acceptance)


@dataclass(frozen=True)
class Forecast:
    """What one round yields and costs, term by term; every cost in target passes."""

    depth: int
    tokens: float
    target: float
    draft: float
    overhead: float

    @property
    def cost(self) -> float:
        return self.target + self.draft + self.overhead

    @property
    def speedup(self) -> float:
        """Tokens per second, relative to plain decoding; below 1: slower."""
        return self.tokens / self.cost

    def __str__(self) -> str:
        verdict = "faster" if self.speedup > 1 else "will be slower" if self.speedup < 1 else "no faster"
        return (
            f"{self.tokens:.2f} tokens a round for {self.cost:.2f} target passes (target {self.target:.2f} + draft "
            f"{self.draft:.2f} + overhead {self.overhead:.2f}): {self.speedup:.2f}x plain decoding, {verdict}"
        )


def forecast(
    acceptance: float,
    depth: int,
    draft_cost: float,
    *,
    overhead: float = 0.0,
    target_cost: Callable[[int], float] | None = None,
) -> Forecast:
    """A round that drafts a chain of `depth` tokens.

    draft_cost: one draft pass. overhead: everything else in a round. target_cost(n): the target's pass over n nodes
    (v(n) in docs/architecture.md); None: as cheap as over one.
    """
    if min(draft_cost, overhead) < 0:
        raise OptionError(f"costs cannot be negative, but draft_cost is {draft_cost} and overhead {overhead}")
    tokens = expected_tokens(acceptance, depth)
    return Forecast(depth, tokens, target_cost(depth + 1) if target_cost else 1.0, depth * draft_cost, overhead)


def best_depth(
    acceptance: float,
    draft_cost: float,
    *,
    max_depth: int = 16,
    overhead: float = 0.0,
    target_cost: Callable[[int], float] | None = None,
) -> Forecast:
    """The forecast with the highest speed-up among depths 1 to max_depth; depth 0, plain decoding, if none pays."""
    plain = Forecast(0, 1.0, 1.0, 0.0, 0.0)
    options = [
        forecast(acceptance, depth, draft_cost, overhead=overhead, target_cost=target_cost)
        for depth in range(1, max_depth + 1)
    ]
    return max([plain, *options], key=lambda option: option.speedup)


def growth_curve(points: Sequence[tuple[int, float]]) -> Callable[[int], float]:
    """v(n) through measured points (width, passes), straight between them and beyond the last two; v(1) is 1.

    Raises OptionError unless there are points of width 2 or more with a cost above 0.
    """
    known = dict(sorted({1: 1.0, **dict(points)}.items()))
    if len(known) < 2 or min(known) < 1 or not all(math.isfinite(cost) and cost > 0 for cost in known.values()):
        raise OptionError(f"target costs are {list(points)}; give widths from 2 on with costs above 0, such as 8:2.3")
    widths = list(known)

    def cost(width: int) -> float:
        above = next((place for place, known_width in enumerate(widths) if known_width >= width), len(widths) - 1)
        low, high = widths[max(0, above - 1)], widths[max(1, above)]
        share = (width - low) / (high - low)
        return known[low] + share * (known[high] - known[low])

    return cost


@dataclass(frozen=True)
class Played:
    """Rounds played with coins. error: the standard error of tokens. cost: of the mean round, in target passes."""

    rounds: int
    tokens: float
    error: float
    cost: float

    @property
    def speedup(self) -> float:
        return self.tokens / self.cost


def play(told: Forecast, acceptance: float, rounds: int, seed: int = 0) -> Played:
    """The forecast's rounds, played: what the formula says, measured without it. Raises OptionError."""
    if rounds < 1:
        raise OptionError(f"rounds is {rounds}; it must be at least 1")
    mean = simulate_tokens(acceptance, told.depth, rounds, seed)
    return Played(rounds, mean, math.sqrt(_variance(acceptance, told.depth) / rounds), told.cost)


def _variance(acceptance: float, depth: int) -> float:
    """Of the tokens of one round: P(more than j kept) is a^(j+1), so E[kept^2] = sum of (2 j + 1) a^(j+1)."""
    kept = expected_tokens(acceptance, depth) - 1
    squares = sum((2 * place + 1) * acceptance ** (place + 1) for place in range(depth))
    return max(0.0, squares - kept**2)


def simulate_tokens(acceptance: float, depth: int, rounds: int, seed: int = 0) -> float:
    """Mean tokens per round over `rounds` rounds played with coins, draft token by draft token."""
    _check(acceptance, depth)
    coins = random.Random(seed)
    written = 0
    for _ in range(rounds):
        kept = 0
        while kept < depth and coins.random() < acceptance:
            kept += 1
        written += kept + 1
    return written / rounds


def _check(acceptance: float, depth: int) -> None:
    if not 0 <= acceptance <= 1:
        raise OptionError(f"acceptance is {acceptance}; it is a chance, from 0 to 1")
    if depth < 0:
        raise OptionError(f"depth is {depth}; it must be 0 or more")
