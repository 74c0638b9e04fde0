"""What decides how much to speculate. A policy sees numbers only: no tokens, no model, no cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


@dataclass(frozen=True)
class Offer:
    """One drafter's proposal for a row, as numbers: its shape, and the drafter's own estimates.

    parents: as in DraftTree, root first. confidence: per node, that it is right given that its parent is; None where
    the drafter gives none, or where tokens were drawn and a decision that looks at them would change their law.
    """

    drafter: str
    parents: tuple[int, ...]
    confidence: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Choice:
    """What is scored of a row's offers: nodes of one of them (root first, in node order); drafter "none": no node."""

    drafter: str = "none"
    nodes: tuple[int, ...] = (0,)
    reason: str = ""


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


@runtime_checkable
class Chooser(Protocol):
    """A policy that decides again when the proposals are there. Asked for the rows whose plan says `revise`."""

    def choose(self, views: Sequence[PlanView], offers: Sequence[Sequence[Offer]]) -> list[Choice]:
        """One choice per view; offers[i]: what the drafters proposed for it (those that proposed something)."""
        ...


@runtime_checkable
class Sheds(Protocol):
    """A policy that says which drafter shall go when memory is short."""

    def shed(self, held: Mapping[str, int]) -> str:
        """The one of these (name: bytes) that is missed least. It is gone, and must not be planned any more."""
        ...
