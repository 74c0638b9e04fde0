"""Speculates as deep as it pays, with the drafter that pays most, or not at all.

Expected tokens of a round over its expected seconds is made as large as possible. One more draft token pays if and only
if its chance of survival exceeds what it costs, in tokens, at the present speed: marginal survival > marginal seconds *
tokens per second. Costs and survival are learned from every round (costs.py, survival.py), so nothing needs to be set.
A row that does not speculate tries again now and then, at growing intervals, because texts change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.policy.base import PlanView
from outrider.policy.costs import Mean, PassCost
from outrider.policy.survival import Survival
from outrider.types import Plan, RoundStats, RowRound

DEEPEST = 24
PROBE_DEPTH = 3
FIRST_WAIT, LONGEST_WAIT = 12, 192  # rounds between probes of a row that does not speculate


@dataclass(frozen=True)
class DrafterShape:
    """What a policy knows of a drafter: nodes per level of its trees (1 for chains)."""

    nodes_per_level: float = 1.0


@dataclass
class _Record:
    """All that was learned of one drafter."""

    survival: Survival = field(default_factory=Survival)
    per_level: Mean = field(default_factory=Mean)  # seconds
    idle: Mean = field(default_factory=Mean)  # seconds of asking it in vain


@dataclass
class _Pause:
    """Rounds since a row last speculated, and how long it waits for the next try."""

    rounds: int = 0
    wait: int = FIRST_WAIT


@dataclass(frozen=True)
class _Choice:
    drafter: str = "none"
    depth: int = 0
    tokens: float = 1.0
    seconds: float = 0.0

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


class AutoPolicy:
    """drafters: those to choose from, with their shapes. A request's own max_depth is taken as it is; 0 means plain."""

    def __init__(self, drafters: Mapping[str, DrafterShape]) -> None:
        self._shapes = dict(drafters)
        self._records = {name: _Record() for name in drafters}
        self._pass = PassCost()
        self._rest = Mean()
        self._pauses: dict[int, _Pause] = {}

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        return [self._plan_row(view, len(views)) for view in views]

    def observe(self, stats: RoundStats) -> None:
        """Learn the costs of the round, and from each row that drafted how far its drafts survived."""
        seconds = stats.seconds
        self._pass.learn(stats.num_nodes, seconds.score)
        self._rest.learn(seconds.accept + seconds.rest)
        drafted = [row for row in stats.rows if row.drafter in self._records]
        for row in drafted:
            self._learn(row, seconds.draft / len(drafted))

    def end(self, row: int) -> None:
        self._pauses.pop(row, None)
        for record in self._records.values():
            record.survival.forget(row)

    def _learn(self, row: RowRound, seconds: float) -> None:
        record = self._records[row.drafter]
        if row.proposed == 0:
            record.idle.learn(seconds)
            return
        record.per_level.learn(seconds / row.depth)
        record.survival.learn(row.row, row.depth, row.accepted)

    def _plan_row(self, view: PlanView, num_rows: int) -> Plan:
        names = [view.wanted_drafter] if view.wanted_drafter else list(self._shapes)
        if view.wanted_depth is not None and names:
            return self._plan(names[0], view.wanted_depth, "as the request wants")
        limit = min(view.room, DEEPEST)
        choices = [self._best_depth(name, view.row, limit, num_rows) for name in names if name in self._shapes]
        plain = self._plain(num_rows)
        best = max(choices, key=lambda choice: choice.speed, default=plain)
        if limit <= 0 or not choices:
            return Plan(reason="no room to speculate" if limit <= 0 else "no drafter")
        if best.depth == 0 or best.speed <= plain.speed:
            return self._pause(view.row, choices, limit)
        self._pauses.pop(view.row, None)
        gain = best.speed / plain.speed if plain.speed > 0 else 1.0
        return self._plan(best.drafter, best.depth, f"{best.tokens:.2f} tokens a round, {gain:.2f}x plain")

    def _plan(self, drafter: str, depth: int, reason: str) -> Plan:
        shape = self._shapes.get(drafter, DrafterShape())
        nodes = max(depth, round(depth * shape.nodes_per_level))
        return Plan(drafter, depth, nodes, reason)

    def _plain(self, num_rows: int) -> _Choice:
        return _Choice(seconds=self._share(num_rows, 0.0))

    def _share(self, num_rows: int, drafted_nodes: float) -> float:
        """Seconds of a round that one row accounts for: its share of the common pass, and all that its nodes add."""
        common = self._pass.of(num_rows) + self._rest.value
        return common / num_rows + self._pass.growth * drafted_nodes

    def _best_depth(self, name: str, row: int, limit: int, num_rows: int) -> _Choice:
        """The depth of greatest speed for this drafter: go on while one more level pays."""
        record, shape = self._records[name], self._shapes[name]
        best = _Choice(name, 0, 1.0, self._share(num_rows, 0.0))
        tokens = alive = 1.0
        for depth in range(1, limit + 1):
            alive *= record.survival.chance(row, depth - 1)
            tokens += alive
            seconds = self._share(num_rows, depth * shape.nodes_per_level) + depth * record.per_level.value
            if tokens * best.seconds < best.tokens * seconds:
                break
            best = _Choice(name, depth, tokens, seconds)
        return best

    def _pause(self, row: int, choices: Sequence[_Choice], limit: int) -> Plan:
        """Plain decoding, with a short try now and then; each try that changes nothing doubles the wait."""
        pause = self._pauses.setdefault(row, _Pause())
        pause.rounds += 1
        if pause.rounds < pause.wait:
            return Plan(reason=f"does not pay; next try in {pause.wait - pause.rounds} rounds")
        pause.rounds, pause.wait = 0, min(LONGEST_WAIT, 2 * pause.wait)
        names = [choice.drafter for choice in choices]
        name = names[(pause.wait // FIRST_WAIT).bit_length() % len(names)]
        return self._plan(name, min(PROBE_DEPTH, limit), "a try, to see whether it pays by now")
