"""Speculates as deep as it pays, with the drafter that pays most, or not at all; nothing needs to be set.

Each round has two decisions. Before drafting (`plan`): free drafters are asked in any case; one that costs passes of a
model is asked if the tokens per second that it promises exceed what is to be had without it. After drafting (`choose`):
of all that was offered, over all rows at once, as many nodes are scored as make tokens minus time greatest (cut.py), so
an offer that does not pay costs nothing but the asking. Everything is learned from the rounds themselves, whether an
offer was scored or not: the pass by its width (costs.py), survival by drafter, run and confidence (survival.py).

A drafter that does not pay is tried again now and then, from a bank that holds a small share of all time spent, so that
trying can never cost more than that share. The formula and the constants are explained in docs/policy.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from outrider.policy.base import Choice, Offer, PlanView
from outrider.policy.cost_model import CostModel
from outrider.policy.costs import Mean, PassCost
from outrider.policy.cut import best_cut
from outrider.policy.outlook import Asking, Outlook, Seeker
from outrider.policy.pick import Picked, look_at, pick
from outrider.policy.records import DrafterShape, Record
from outrider.policy.tries import Tries
from outrider.policy.warmth import Warmth
from outrider.types import Plan, RoundStats

DEEPEST = 24
MOST_NODES = 48
LEAST = 0.05  # survival of a node that is scored, even where wider passes seem to cost nothing: plain ones must be seen
FREE_SHARE = 0.02  # asking free drafters may take this share of a plain round; beyond it they must earn their cost
IDLE_SHARE = 0.003  # if asking takes more than this, rows in which no draft has paid for long are asked less often
PATIENCE = 8  # rounds without a paying draft that are not long
TRY_DEPTH = 3
SURE = 0.97
HORIZON = 128  # tokens over which the cost of reading a text for the first time is spread, at most


@dataclass
class _Row:
    """Where one request stands: how warm it is, rounds since a draft paid, and tokens hoped for in this round."""

    heat: Warmth
    idle: int = 0
    hoped: float = 0.0

    @property
    def warmth(self) -> int:
        return self.heat.stage


class AutoPolicy:
    """drafters: those to choose from, with their shapes. costs: measured beforehand (`outrider calibrate`), if at all.

    A request's own max_depth is taken as it is; 0 means plain.
    """

    def __init__(self, drafters: Mapping[str, DrafterShape], costs: CostModel | None = None) -> None:
        shapes = {name: costs.shape(name, shape) if costs else shape for name, shape in drafters.items()}
        self._records = {name: Record(shape) for name, shape in shapes.items()}
        self._pass = PassCost(costs.curve() if costs else None)
        self._rest = Mean()
        if costs:
            self._rest.learn(costs.overhead)
        self._rows: dict[int, _Row] = {}
        self._tries = Tries()
        self._useful = DEEPEST
        self._num_rows = 0
        self._begun = False
        self._tokens = self._plain = 0.0  # written in the last rounds, and what plain decoding had written; fading

    # ---- before drafting

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        plans = {view.row: plan for view in views if (plan := self._decided(view))}
        undecided = [view for view in views if view.row not in plans]
        self._num_rows = len(views)
        outlook = Outlook(self._pass.of, len(views), self._worth(len(views)))
        for wanted in dict.fromkeys(view.wanted_drafter for view in undecided):
            names = [wanted] if wanted else list(self._records)
            plans |= self._ask_for([view for view in undecided if view.wanted_drafter == wanted], names, outlook)
        return [plans[view.row] for view in views]

    def _decided(self, view: PlanView) -> Plan | None:
        """The plan of a row that leaves nothing to decide."""
        names = [view.wanted_drafter] if view.wanted_drafter else list(self._records)
        if view.wanted_depth is not None and names:
            return Plan(names[0], view.wanted_depth, self._nodes(names[0], view.wanted_depth), "as the request wants")
        if view.room <= 0:
            return Plan(reason="no room to speculate")
        if not any(name in self._records for name in names):
            return Plan(reason="no drafter")
        self._rows.setdefault(view.row, _Row(Warmth.of(view.temperature)))
        return None

    def _ask_for(self, views: Sequence[PlanView], names: Sequence[str], outlook: Outlook) -> dict[int, Plan]:
        """Plans of rows that choose among the same drafters: free ones in any case, another where it should pay."""
        free = [name for name in names if self._is_free(name, outlook.num_rows)]
        paid = [name for name in names if name not in free]
        why = "free to ask" if free else "nothing pays"
        plans = {view.row: self._plan_of(view, self._due(view.row, free, outlook.num_rows), why) for view in views}
        asked = self._ask_paid(views, paid, free, outlook) if paid else {}
        if paid and not asked and (tried := self._try(views, paid, outlook)):
            view, name = tried
            plans[view.row] = self._plan_of(view, free, "a try, to see whether it pays by now", name, TRY_DEPTH)
        return plans | asked

    def _ask_paid(
        self, views: Sequence[PlanView], names: Sequence[str], free: Sequence[str], outlook: Outlook
    ) -> dict[int, Plan]:
        """Plans that ask one of these drafters, for the rows where that should pay: first the one that brings most."""
        seekers = [self._seeker(view, free, outlook) for view in views]
        found = [(name, self._asking(name, seekers, outlook)) for name in names]
        name, asking = max(found, key=lambda one: one[1].surplus)
        if asking.surplus <= 0:
            return {}
        depth, why = self._deeper(name, asking).depth, f"{name} promises to pay"
        plans = {v.row: self._plan_of(v, free, why, name, depth) for v in views if v.row in asking.rows}
        rest, others = [v for v in views if v.row not in plans], [other for other in names if other != name]
        return plans | self._ask_paid(rest, others, free, outlook) if rest and others else plans

    def _plan_of(self, view: PlanView, free: Sequence[str], reason: str, paid: str = "", depth: int = 0) -> Plan:
        """A plan that asks all free drafters, and `paid` at that depth if it is named; what is scored is open."""
        limit = min(view.room, self._useful)
        asks = [(paid, min(depth, limit))] if paid else []
        asks += [(name, limit) for name in free]
        if not asks:
            return Plan(reason=reason)
        first, *others = [Plan(name, levels, self._nodes(name, levels)) for name, levels in asks]
        return replace(first, reason=reason, others=tuple(others), revise=True)

    def _seeker(self, view: PlanView, free: Sequence[str], outlook: Outlook) -> Seeker:
        warmth, limit = self._rows[view.row].warmth, min(view.room, DEEPEST)
        seeker = Seeker(view.row, warmth, view.context_length, limit, min(HORIZON, view.room + 1))
        alone = max((outlook.free(self._records[name], seeker) for name in free), default=0.0)
        return replace(seeker, alone=max(0.0, alone))

    def _asking(self, name: str, seekers: Sequence[Seeker], outlook: Outlook) -> Asking:
        """What asking it should bring; while little is known of it, it is asked for one row alone, and not deep."""
        record = self._records[name]
        asking = outlook.paid(record, seekers)
        if record.proven or asking.surplus <= 0:
            return asking
        row = next((row for row in asking.rows if record.knows(row)), asking.rows[0])
        return replace(asking, depth=min(asking.depth, TRY_DEPTH), rows=(row,))

    def _deeper(self, name: str, asking: Asking) -> Asking:
        """One level more than seems best, now and then: how far a draft survives shows only in deeper ones."""
        record = self._records[name]
        if asking.surplus <= 0 or record.shape.free or not self._tries.afford(record.level.value):
            return asking
        return replace(asking, depth=asking.depth + 1)

    def _nodes(self, drafter: str, depth: int) -> int:
        record = self._records.get(drafter)
        wide = record.shape.nodes_per_level if record else 1.0
        return max(depth, min(MOST_NODES, round(depth * wide)))

    def _due(self, row: int, free: Sequence[str], num_rows: int) -> Sequence[str]:
        """The free drafters that are asked in this round: where none has paid for long, not in every one."""
        asking = sum(self._records[name].ask.value for name in free) * num_rows
        idle = self._rows[row].idle
        if idle < PATIENCE or asking <= IDLE_SHARE * self._round_seconds(num_rows):
            return free
        return free if idle % (2 if idle < 4 * PATIENCE else 4) == 0 else ()

    def _is_free(self, name: str, num_rows: int) -> bool:
        """Whether asking it is not worth a thought: no passes, and little time beside a round's."""
        record = self._records[name]
        return record.shape.free and record.ask.value * num_rows <= FREE_SHARE * self._round_seconds(num_rows) + 1e-9

    def _round_seconds(self, num_rows: int) -> float:
        return self._pass.of(num_rows) + self._rest.value

    def _try(self, views: Sequence[PlanView], names: Sequence[str], outlook: Outlook) -> tuple[PlanView, str] | None:
        """A row and a drafter that does not seem to pay, if it is time to try and the bank holds what that costs."""
        by_row = {view.row: view for view in views}

        def cost(row: int, name: str) -> float:
            record = self._records[name]
            asking = record.ask.value if record.shape.free else TRY_DEPTH * record.level.value
            more = self._pass.of(outlook.num_rows + TRY_DEPTH) - self._pass.of(outlook.num_rows)
            return asking + record.reading(row, by_row[row].context_length) + more

        found = self._tries.next(list(by_row), names, cost)
        return (by_row[found[0]], found[1]) if found else None

    # ---- after drafting

    def choose(self, views: Sequence[PlanView], offers: Sequence[Sequence[Offer]]) -> list[Choice]:
        """The nodes that are worth a place in the common pass; see cut.py."""
        num_rows = max(self._num_rows, len(views))  # those with nothing to choose share the pass
        worth = self._worth(num_rows)
        picked = [
            pick(row, partial(self._look, view.row), num_rows, self._pass.of, worth)
            for view, row in zip(views, offers, strict=True)
        ]
        nodes = sorted((-alive, place, node) for place, one in enumerate(picked) for node, alive in one.alive())
        allowed = [-alive for alive, _, _ in nodes if -alive >= LEAST][: max(0, self._pass.reach - num_rows)]
        cut = best_cut(allowed, num_rows, self._pass.of, worth=worth, spent=self._rest.value)
        kept = [[0] for _ in picked]
        for _, place, node in nodes[: cut.num_nodes]:
            kept[place].append(node)
        self._expect(views, picked, kept)
        plain = num_rows / max(self._round_seconds(num_rows), 1e-12)
        return [one.choice(tuple(sorted(keep)), cut, cut.speed / plain) for one, keep in zip(picked, kept, strict=True)]

    def _look(self, row: int, offer: Offer) -> Picked:
        return look_at(offer, self._records[offer.drafter], row, self._rows[row].warmth)

    def _expect(self, views: Sequence[PlanView], picked: Sequence[Picked], kept: Sequence[Sequence[int]]) -> None:
        """Note what is hoped for, to hold it against what comes."""
        for view, one, nodes in zip(views, picked, kept, strict=True):
            row = self._rows[view.row]
            row.hoped = one.hoped(nodes) if len(nodes) > 1 else 0.0

    def _worth(self, num_rows: int) -> float:
        """Tokens per second that time is worth: plain speed, times what the last rounds gained over it if they did."""
        seconds = self._round_seconds(num_rows)
        gain = self._tokens / self._plain if self._plain > 0 else 1.0
        return max(1.0, gain) * num_rows / seconds if seconds > 0 else 0.0

    # ---- afterwards

    def observe(self, stats: RoundStats) -> None:
        """Learn the costs of the round, and from every proposal how far it came true."""
        seconds = stats.seconds
        if self._begun:  # the first pass of all finds nothing in place, and plain ones would seem dear for long
            self._pass.learn(stats.num_nodes, seconds.score)
        self._begun = True
        self._rest.learn(seconds.accept + seconds.rest)
        spent = seconds.total - seconds.prefill
        self._tries.earn(spent)
        self._tokens = self._tokens * 0.9 + sum(row.delivered for row in stats.rows)
        plain = self._round_seconds(len(stats.rows)) or spent
        self._plain = self._plain * 0.9 + len(stats.rows) * spent / plain if plain > 0 else 0.0
        for one in stats.judged:
            if one.drafter in self._records and one.row in self._rows:
                self._records[one.drafter].learn(one, self._rows[one.row].warmth)
        self._learn_rows(stats)
        self._learn_asking(stats)
        self._useful = self._useful_depth(len(stats.rows))
        self._learn_costs(stats)

    def _learn_rows(self, stats: RoundStats) -> None:
        """Where each request stands now; what was hoped for of each drafter's nodes, against what was kept of them."""
        hoped, kept = dict[str, float](), dict[str, float]()
        for one in stats.rows:
            if row := self._rows.get(one.row):
                row.heat.learn(one.delivered, one.surprisal)
                row.idle = 0 if one.proposed else row.idle + 1
            if row and row.hoped:
                hoped[one.drafter] = hoped.get(one.drafter, 0.0) + row.hoped
                kept[one.drafter] = kept.get(one.drafter, 0.0) + one.accepted
                row.hoped = 0.0
        for name, record in self._records.items():
            record.hope.learn(hoped[name], kept[name]) if name in hoped else record.hope.forgive()

    def _useful_depth(self, num_rows: int) -> int:
        """Levels of which all are scored if every token is as good as certain: no free drafter is asked for more."""
        sure = [SURE**depth for depth in range(1, DEEPEST + 1)]
        return max(TRY_DEPTH, best_cut(sure, num_rows, self._pass.of, worth=self._worth(num_rows)).num_nodes)

    def _learn_costs(self, stats: RoundStats) -> None:
        before = {row.row: row.context_length - row.delivered for row in stats.rows}
        for asked in stats.asked:
            if record := self._records.get(asked.drafter):
                rows = [one.row for one in stats.judged if one.drafter == asked.drafter and one.row in before]
                record.learn_cost(asked, sum(record.behind(row, before[row]) for row in rows))
                for row in rows:
                    record.read_up_to(row, before[row])

    def _learn_asking(self, stats: RoundStats) -> None:
        """Of drafters that cost passes: how often each is asked again after it has read a text; what it overhears."""
        pairs = {(one.drafter, one.row) for one in stats.judged}
        for name, record in self._records.items():
            for one in () if record.shape.free else stats.rows:
                asked = (name, one.row) in pairs
                if one.proposed and not asked:
                    record.overhear(one.row, one.accepted, one.accepted < one.depth)
                if record.knows(one.row):
                    record.usage.learn(float(asked))

    def shed(self, held: Mapping[str, int]) -> str:
        """The drafter that kept the fewest tokens per byte in the last rounds. See policy/base.py."""
        name = min(held, key=lambda one: self._records[one].hope.kept / held[one] if one in self._records else 0.0)
        self._records.pop(name, None)
        return name

    def end(self, row: int) -> None:
        self._rows.pop(row, None)
        self._tries.forget(row)
        for record in self._records.values():
            record.forget(row)
