"""What decides how much to speculate. A policy sees numbers only: no tokens, no model, no cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.types import Plan, RoundStats


@dataclass(frozen=True)
class PlanView:
    """What a policy may know of one row before a round.

    room: most tokens that may still be drafted (budget and context limit). wanted_depth, wanted_drafter: what the
    request asks for; None leaves it to the policy. temperature: of the request, 0 for greedy.
    """

    row: int
    context_length: int
    num_written: int
    room: int
    temperature: float
    wanted_depth: int | None = None
    wanted_drafter: str | None = None


class Policy(Protocol):
    """Plans every round for every row."""

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        """One plan per view. Depths above a row's room are cut by the engine."""
        ...

    def observe(self, stats: RoundStats) -> None:
        """What became of the round that was planned last."""
        ...

    def end(self, row: int) -> None:
        """The row's request is over."""
        ...
