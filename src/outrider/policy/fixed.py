"""The same drafter, depth and size in every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.errors import OptionError
from outrider.policy.base import PlanView
from outrider.types import Plan, RoundStats


@dataclass(frozen=True)
class FixedPolicy:
    """Always `drafter`, `max_depth` deep, with at most `max_nodes` drafted nodes (None or 0: as many as the depth).

    A request's own max_depth (and as many nodes) and drafter win over the policy's. others: those of drafters that
    a request names, where it is not this one.
    """

    drafter: str
    max_depth: int
    max_nodes: int | None = None
    others: "Mapping[str, FixedPolicy]" = field(default_factory=dict[str, "FixedPolicy"])

    def __post_init__(self) -> None:
        for option in ("max_depth", "max_nodes"):
            value = getattr(self, option)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise OptionError(f"{option} is {value!r}; it must be a whole number of at least 0")

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        return [self._plan_row(view) for view in views]

    def _plan_row(self, view: PlanView) -> Plan:
        if other := self.others.get(view.wanted_drafter or self.drafter):
            return other._plan_row(view)
        depth = self.max_depth if view.wanted_depth is None else view.wanted_depth
        nodes = self.max_nodes or depth
        if view.wanted_depth is not None:
            nodes = max(nodes, depth)
        return Plan(view.wanted_drafter or self.drafter, depth, nodes, f"fixed at {depth}")

    def observe(self, stats: RoundStats) -> None:
        """Nothing to learn."""

    def end(self, row: int) -> None:
        """Nothing to forget."""
