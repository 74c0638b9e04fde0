"""What `suffix` remembers of finished requests: nothing unless asked, never more than that, the oldest gone first."""

from collections.abc import Sequence

import pytest

from outrider import SamplingParams
from outrider.drafters.base import DraftContext
from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import OptionError
from outrider.sampling.noise import Noise
from outrider.types import Plan

FIRST = list(range(10, 20))
SECOND = list(range(30, 40))


def drafted(drafter: SuffixDrafter, row: int, tokens: Sequence[int]) -> tuple[int, ...]:
    """What follows the root in the proposal for a request that has just begun."""
    drafter.begin(row, tokens)
    params = SamplingParams().resolve({}, (), 50)
    context = DraftContext(row, list(tokens), len(tokens), params, Noise(0), "token", Plan("suffix", 3, 3), False)
    return drafter.propose_row(context).tokens[1:]


def finish(drafter: SuffixDrafter, row: int, tokens: Sequence[int]) -> None:
    drafted(drafter, row, tokens)
    drafter.end(row)


def test_requests_share_nothing_unless_asked() -> None:
    drafter = SuffixDrafter()
    finish(drafter, 0, FIRST)
    assert drafted(drafter, 1, FIRST[:5]) == ()
    assert not drafter._past


def test_earlier_requests_are_drawn_from_if_asked() -> None:
    drafter = SuffixDrafter(remember=100)
    finish(drafter, 0, FIRST)
    assert drafted(drafter, 1, [1, *FIRST[2:6]]) == tuple(FIRST[6:9])
    assert drafted(drafter, 2, SECOND[:5]) == ()


@pytest.mark.parametrize(("remember", "first", "second"), [(20, True, True), (19, False, True), (9, False, False)])
def test_the_oldest_are_forgotten_first(remember: int, first: bool, second: bool) -> None:
    drafter = SuffixDrafter(remember=remember)
    finish(drafter, 0, FIRST)
    finish(drafter, 1, SECOND)
    assert sum(text.num_tokens for text in drafter._past) <= remember
    assert bool(drafted(drafter, 2, FIRST[:5])) == first
    assert bool(drafted(drafter, 3, SECOND[:5])) == second


@pytest.mark.parametrize("remember", [-1, True])
def test_odd_bounds_are_refused(remember: int) -> None:
    with pytest.raises(OptionError, match="remember"):
        SuffixDrafter(remember=remember)
