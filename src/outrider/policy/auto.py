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

from outrider.policy.base import Choice, Offer, PlanView
from outrider.policy.cost_model import CostModel
from outrider.policy.costs import Mean, PassCost
from outrider.policy.cut import Cut, best_cut, survivals
from outrider.policy.outlook import Asking, Outlook, Seeker
from outrider.policy.records import DrafterShape, Record
from outrider.types import Plan, RoundStats

DEEPEST = 24
MOST_NODES = 48
FREE_SHARE = 0.02  # asking free drafters may take this share of a plain round; beyond it they must earn their cost
TRY_SHARE = 0.01  # of all time, for trying what does not seem to pay
TRY_DEPTH = 3
SURE = 0.97
FIRST_WAIT, LONGEST_WAIT = 12, 384  # rounds between tries in one row
HORIZON = 128  # tokens over which the cost of reading a text for the first time is spread, at most


@dataclass
class _Row:
    """Where one request stands: how warm it is, and rounds until a drafter that does not pay may be tried again."""

    warmth: int
    wait: int = FIRST_WAIT
    rounds: int = 0


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
        self._bank = 0.0
        self._useful = DEEPEST
        self._tokens = self._plain = 0.0  # written in the last rounds, and what plain decoding had written; fading

    # ---- before drafting

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        plans = {view.row: plan for view in views if (plan := self._decided(view))}
        undecided = [view for view in views if view.row not in plans]
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
        self._rows.setdefault(view.row, _Row(_warmth(view.temperature)))
        return None

    def _ask_for(self, views: Sequence[PlanView], names: Sequence[str], outlook: Outlook) -> dict[int, Plan]:
        """Plans of rows that choose among the same drafters: free ones in any case, another where it should pay."""
        free = [name for name in names if self._is_free(name, outlook.num_rows)]
        paid = [name for name in names if name not in free]
        plans = {view.row: self._plan_of(view, free, "free to ask" if free else "nothing pays") for view in views}
        if not paid:
            return plans
        seekers = [self._seeker(view, free, outlook) for view in views]
        found = [(name, self._asking(name, seekers, outlook)) for name in paid]
        name, asking = max(found, key=lambda one: one[1].surplus)
        for view in views:
            if asking.surplus > 0 and view.row in asking.rows:
                plans[view.row] = self._plan_of(view, free, f"{name} promises to pay", name, asking.depth)
        if asking.surplus <= 0 and (tried := self._try(views, paid, outlook)):
            view, name = tried
            plans[view.row] = self._plan_of(view, free, "a try, to see whether it pays by now", name, TRY_DEPTH)
        return plans

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

    def _nodes(self, drafter: str, depth: int) -> int:
        record = self._records.get(drafter)
        wide = record.shape.nodes_per_level if record else 1.0
        return max(depth, min(MOST_NODES, round(depth * wide)))

    def _is_free(self, name: str, num_rows: int) -> bool:
        """Whether asking it is not worth a thought: no passes, and little time beside a round's."""
        record = self._records[name]
        return record.shape.free and record.ask.value * num_rows <= FREE_SHARE * self._round_seconds(num_rows) + 1e-9

    def _round_seconds(self, num_rows: int) -> float:
        return self._pass.of(num_rows) + self._rest.value

    def _try(self, views: Sequence[PlanView], names: Sequence[str], outlook: Outlook) -> tuple[PlanView, str] | None:
        """A row and a drafter that does not seem to pay, if it is time to try and the bank holds what that costs."""
        for view in views:
            self._rows[view.row].rounds += 1
        view = max(views, key=lambda one: self._rows[one.row].rounds - self._rows[one.row].wait)
        row = self._rows[view.row]
        if row.rounds < row.wait:
            return None
        name = names[row.wait.bit_length() % len(names)]
        record = self._records[name]
        asking = record.ask.value if record.shape.free else TRY_DEPTH * record.level.value
        costs = asking + record.reading(view.row, view.context_length)
        costs += self._pass.of(outlook.num_rows + TRY_DEPTH) - self._pass.of(outlook.num_rows)
        if costs > self._bank:
            return None
        self._bank -= costs
        row.rounds, row.wait = 0, min(LONGEST_WAIT, 2 * row.wait)
        return view, name

    # ---- after drafting

    def choose(self, views: Sequence[PlanView], offers: Sequence[Sequence[Offer]]) -> list[Choice]:
        """The nodes that are worth a place in the common pass; see cut.py."""
        num_rows = len(views)
        worth = self._worth(num_rows)
        picked = [self._pick(view, row, num_rows, worth) for view, row in zip(views, offers, strict=True)]
        nodes = sorted((-alive, place, node) for place, one in enumerate(picked) for node, alive in one.alive())
        allowed = [-alive for alive, _, _ in nodes][: max(0, self._pass.reach - num_rows)]
        cut = best_cut(allowed, num_rows, self._pass.of, worth=worth, spent=self._rest.value)
        kept = [[0] for _ in picked]
        for _, place, node in nodes[: cut.num_nodes]:
            kept[place].append(node)
        plain = num_rows / max(self._round_seconds(num_rows), 1e-12)
        return [one.choice(tuple(sorted(keep)), cut, cut.speed / plain) for one, keep in zip(picked, kept, strict=True)]

    def _pick(self, view: PlanView, offers: Sequence[Offer], num_rows: int, worth: float) -> "_Picked":
        """The offer that would bring this row most if its nodes alone joined the pass."""
        best, best_value = _Picked(None, ()), float("-inf")
        if len(offers) == 1:
            return _Picked(offers[0], tuple(survivals(offers[0].parents, self._chances(view, offers[0]))))
        for offer in offers:
            alive = survivals(offer.parents, self._chances(view, offer))
            cut = best_cut(sorted(alive[1:], reverse=True), num_rows, self._pass.of, worth=worth)
            value = cut.tokens - worth * cut.seconds
            if value > best_value:
                best, best_value = _Picked(offer, tuple(alive)), value
        return best

    def _chances(self, view: PlanView, offer: Offer) -> list[float]:
        """Chance of every node given its parent. Siblings without confidence share their level's, earlier ones more."""
        record, warmth = self._records[offer.drafter], self._rows[view.row].warmth
        depths, ranks, chances = [0], dict[int, int](), [1.0]
        known: dict[tuple[int, float | None], float] = {}
        for node, parent in enumerate(offer.parents[1:], 1):
            depths.append(depths[parent] + 1)
            ranks[parent] = ranks.get(parent, 0) + 1
            said = offer.confidence[node] if offer.confidence else None
            case = (record.stage(view.row, depths[parent]), said)
            if case not in known:
                known[case] = record.chance(view.row, warmth, depths[parent], said)
            chance = known[case]
            chances.append(chance if said is not None else chance * 0.5 ** (ranks[parent] - 1))
        return chances

    def _worth(self, num_rows: int) -> float:
        """Tokens per second that time is worth: plain speed, times what the last rounds gained over it if they did."""
        seconds = self._round_seconds(num_rows)
        gain = self._tokens / self._plain if self._plain > 0 else 1.0
        return max(1.0, gain) * num_rows / seconds if seconds > 0 else 0.0

    # ---- afterwards

    def observe(self, stats: RoundStats) -> None:
        """Learn the costs of the round, and from every proposal how far it came true."""
        seconds = stats.seconds
        self._pass.learn(stats.num_nodes, seconds.score)
        self._rest.learn(seconds.accept + seconds.rest)
        spent = seconds.total - seconds.prefill
        self._bank += TRY_SHARE * spent
        self._tokens = self._tokens * 0.9 + sum(row.delivered for row in stats.rows)
        plain = self._round_seconds(len(stats.rows)) or spent
        self._plain = self._plain * 0.9 + len(stats.rows) * spent / plain if plain > 0 else 0.0
        for one in stats.judged:
            if one.drafter in self._records and one.row in self._rows:
                self._records[one.drafter].learn(one, self._rows[one.row].warmth)
        self._learn_usage(stats)
        self._useful = self._useful_depth(len(stats.rows))
        self._learn_costs(stats)

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

    def _learn_usage(self, stats: RoundStats) -> None:
        """How often a drafter that costs passes is asked again once it has read a text."""
        asked = {(one.drafter, one.row) for one in stats.judged}
        for name, record in self._records.items():
            for row in stats.rows:
                if not record.shape.free and record.knows(row.row):
                    record.usage.learn(float((name, row.row) in asked))

    def end(self, row: int) -> None:
        self._rows.pop(row, None)
        for record in self._records.values():
            record.forget(row)


@dataclass(frozen=True)
class _Picked:
    """A row's best offer, and the survival of each of its nodes."""

    offer: Offer | None
    survival: tuple[float, ...]

    def alive(self) -> list[tuple[int, float]]:
        return list(enumerate(self.survival))[1:]

    def choice(self, nodes: tuple[int, ...], cut: Cut, gain: float) -> Choice:
        if self.offer is None:
            return Choice(reason="nothing was offered")
        offered = f"{self.offer.drafter} offered {len(self.survival) - 1}"
        first = f"first kept with chance {max(self.survival[1:]):.2f}"
        if len(nodes) == 1:
            return Choice(reason=f"{offered}, {first}: not worth its place")
        hoped = 1 + sum(self.survival[node] for node in nodes[1:])
        reason = f"{offered}, scored {len(nodes) - 1}, {first}: {hoped:.2f} tokens hoped for, {gain:.2f}x plain"
        return Choice(self.offer.drafter, nodes, reason)


def _warmth(temperature: float) -> int:
    """Requests are told apart by how random they are: greedy, cool, warm."""
    return 0 if temperature == 0 else 1 if temperature <= 0.8 else 2
