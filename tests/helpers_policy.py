"""A simulated engine: survival and costs are given, time is counted instead of measured, everything is seeded.

A text is, for every drafter, a sequence of hits: whether its next token would be right at that place. A proposal made
at place t is right as far as hits follow t without a miss, whatever policy asks for it, so settings are compared on the
very same texts. Where a drafter has a style, hits come in stretches (a copied passage, then new words).
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.policy.base import Choice, Offer, PlanView, Policy
from outrider.types import Asked, Judged, PhaseSeconds, Plan, RoundStats, RowRound


@dataclass(frozen=True)
class Style:
    """How a drafter fares with a kind of text: hit chance within stretches and between them, and their mean lengths.

    offers: chance to propose anything between stretches. says: whether it states its confidence (then calibrated).
    """

    good: float
    bad: float = 0.0
    stay: float = 0.0  # mean length of a stretch; 0: hits are independent with chance `good`
    gap: float = 10.0
    offers: float = 1.0
    says: bool = False


@dataclass(frozen=True)
class Cost:
    """Seconds: level (one level of a draft), ask (once per row and round), read (per token not yet read)."""

    level: float = 0.0
    ask: float = 0.0
    read: float = 0.0


@dataclass
class Text:
    """What each drafter would have right, place by place."""

    hits: Mapping[str, Sequence[bool]]
    offers: Mapping[str, Sequence[bool]]
    says: Mapping[str, Sequence[float] | None]
    length: int


def write(styles: Mapping[str, Style], length: int, seed: int) -> Text:
    coins = random.Random(seed)
    made = {name: _stretches(style, length + 64, coins) for name, style in styles.items()}
    return Text(
        {name: hits for name, (hits, _, _) in made.items()},
        {name: offers for name, (_, offers, _) in made.items()},
        {name: says for name, (_, _, says) in made.items()},
        length,
    )


def _stretches(style: Style, length: int, coins: random.Random) -> tuple[list[bool], list[bool], list[float] | None]:
    hits, offers, says = list[bool](), list[bool](), list[float]()
    within = style.stay == 0 or coins.random() < 0.5
    for _ in range(length):
        if style.stay:
            within = coins.random() >= 1 / style.stay if within else coins.random() < 1 / style.gap
        chance = style.good if within else style.bad
        said = min(0.99, max(0.01, coins.betavariate(6 * chance + 0.3, 6 * (1 - chance) + 0.3)))
        says.append(said)
        hits.append(coins.random() < (said if style.says else chance))
        offers.append(within or coins.random() < style.offers)
    return hits, offers, says if style.says else None


@dataclass
class Machine:
    """Costs of a simulated machine. curve: seconds of a pass by width. noise: relative; stalls come once in 300."""

    curve: Callable[[float], float]
    drafters: Mapping[str, Cost]
    overhead: float = 0.01
    noise: float = 0.03
    seed: int = 5
    _coins: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._coins = random.Random(self.seed)

    def jitter(self) -> float:
        if self.noise == 0:
            return 1.0
        return 5.0 if self._coins.random() < 1 / 300 else max(0.7, self._coins.gauss(1, self.noise))


@dataclass
class Running:
    """A request on its way."""

    row: int
    text: Text
    place: int = 0
    read: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def room(self) -> int:
        return self.text.length - self.place - 1

    def accepted(self, drafter: str, depth: int) -> int:
        hits = self.text.hits[drafter]
        return next((n for n in range(depth) if not hits[self.place + n]), depth)

    def offer(self, plan: Plan) -> Offer | None:
        depth = min(plan.max_depth, self.room)
        if depth <= 0 or plan.drafter == "none" or not self.text.offers[plan.drafter][self.place]:
            return None
        said = self.text.says[plan.drafter]
        confidence = None if said is None else (1.0, *said[self.place : self.place + depth])
        return Offer(plan.drafter, tuple(range(-1, depth)), confidence)


@dataclass(frozen=True)
class Spent:
    tokens: int
    seconds: float

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def simulate(
    machine: Machine, policy: Policy, texts: Sequence[Text], *, num_rows: int = 1, prompt: int = 200, first_row: int = 0
) -> Spent:
    """All texts written under the policy, `num_rows` at a time."""
    waiting = [Running(first_row + index, text) for index, text in enumerate(texts)]
    running, seconds = list[Running](), 0.0
    while waiting or running:
        while waiting and len(running) < num_rows:
            running.append(waiting.pop(0))
        seconds += _round(machine, policy, running, prompt)
        for one in [one for one in running if one.place >= one.text.length]:
            policy.end(one.row)
            running.remove(one)
    return Spent(sum(text.length for text in texts), seconds)


def _round(machine: Machine, policy: Policy, rows: Sequence[Running], prompt: int) -> float:
    views = [PlanView(one.row, prompt + one.place, one.place, one.room, 0.0) for one in rows]
    plans = policy.plan(views)
    asks = [
        [plan, *plan.others] if plan.max_depth > 0 and one.room > 0 else []
        for plan, one in zip(plans, rows, strict=True)
    ]
    offers = [{p.drafter: one.offer(p) for p in ask} for ask, one in zip(asks, rows, strict=True)]
    asked = _draft(machine, rows, asks, offers, prompt)
    choices = _choose(policy, views, plans, offers)
    nodes = sum(len(choice.nodes) for choice in choices)
    score = machine.curve(nodes) * machine.jitter()
    spent = PhaseSeconds(draft=sum(one.seconds for one in asked), score=score, rest=machine.overhead)
    figures, judged = list[RowRound](), list[Judged]()
    for one, plan, choice, offered in zip(rows, plans, choices, offers, strict=True):
        depth = len(choice.nodes) - 1
        kept = one.accepted(choice.drafter, depth) if depth else 0
        if plan.revise:
            judged += [_judge(one, name, offer, kept + 1) for name, offer in offered.items()]
        one.place += kept + 1
        figures.append(RowRound(one.row, choice.drafter, depth, kept, kept + 1, depth, prompt + one.place))
    policy.observe(RoundStats(tuple(figures), spent, nodes, tuple(asked), tuple(judged)))
    return spent.total


def _draft(
    machine: Machine,
    rows: Sequence[Running],
    asks: Sequence[Sequence[Plan]],
    offers: Sequence[Mapping[str, Offer | None]],
    prompt: int,
) -> list[Asked]:
    found: list[Asked] = []
    for name in dict.fromkeys(p.drafter for ask in asks for p in ask):
        places = [i for i, ask in enumerate(asks) if name in [p.drafter for p in ask]]
        cost = machine.drafters[name]
        depth = max(len(offer.parents) - 1 if (offer := offers[i][name]) else 0 for i in places)
        behind = sum(prompt + rows[i].place - rows[i].read.get(name, 0) for i in places)
        for i in places:
            rows[i].read[name] = prompt + rows[i].place
        seconds = cost.ask * len(places) + cost.level * depth + cost.read * max(0, behind - 8 * len(places))
        found.append(Asked(name, len(places), depth, seconds * machine.jitter()))
    return found


def _choose(
    policy: Policy,
    views: Sequence[PlanView],
    plans: Sequence[Plan],
    offers: Sequence[Mapping[str, Offer | None]],
) -> list[Choice]:
    choices = [_as_planned(plan, offered) for plan, offered in zip(plans, offers, strict=True)]
    places = [i for i, plan in enumerate(plans) if plan.revise]
    if places:
        given = [[offer for offer in offers[i].values() if offer] for i in places]
        revised = policy.choose([views[i] for i in places], given)  # pyright: ignore
        for place, choice in zip(places, revised, strict=True):
            choices[place] = choice
    return choices


def _as_planned(plan: Plan, offered: Mapping[str, Offer | None]) -> Choice:
    offer = offered.get(plan.drafter)
    return Choice(plan.drafter, tuple(range(len(offer.parents)))) if offer else Choice()


def _judge(one: Running, name: str, offer: Offer | None, delivered: int) -> Judged:
    levels: list[tuple[float | None, bool]] = []
    depth = len(offer.parents) - 1 if offer else 0
    for level in range(min(depth, delivered)):
        said = offer.confidence[level + 1] if offer and offer.confidence else None
        levels.append((said, one.text.hits[name][one.place + level]))
        if not levels[-1][1]:
            break
    return Judged(one.row, name, depth, tuple(levels))
