"""How likely drafted tokens must be kept for a chain to pay, given how a pass grows with its width."""

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.simulate import expected_tokens

STEPS = 40  # halvings; far below what a measurement can tell apart


@dataclass(frozen=True)
class WidthCost:
    """One width of a target's pass. growth: in passes of width 1.

    break_even: the least chance of a drafted token to be kept at which a chain that fills the pass, drafted for
    nothing, is no slower than plain decoding; None: it never is.
    """

    width: int
    seconds: float
    growth: float
    break_even: float | None


def width_costs(seconds: Mapping[int, float]) -> list[WidthCost]:
    """What each measured width costs. `seconds` by width must hold width 1."""
    one = seconds[1]
    return [WidthCost(w, spent, spent / one, break_even(spent / one, w - 1)) for w, spent in sorted(seconds.items())]


def break_even(growth: float, depth: int) -> float | None:
    """The acceptance at which a round of `growth` passes with a chain of `depth` brings just `growth` tokens."""
    if growth <= 1.0 or depth == 0:
        return 0.0
    if growth > depth + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_tokens(middle, depth) < growth else (low, middle)
    return high
