"""Replays times calibrated costs: tokens per second of every setting, for every batch size and kind of prompt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outrider.planner.replay import PLAIN, Rounds, Setting
from outrider.planner.traffic import Sample
from outrider.policy.cost_model import CostModel

BATCHES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Priced:
    """A setting on some samples at one batch size. Seconds of a mean round by phase; speed in tokens per second."""

    setting: Setting
    batch: int
    tokens_per_round: float
    draft: float
    score: float
    rest: float
    speed: float

    @property
    def round_seconds(self) -> float:
        return self.draft + self.score + self.rest


def price(setting: Setting, rounds: Rounds, costs: CostModel, batch: int, context: float) -> Priced:
    """What rounds of that mean yield and width take when `batch` such requests run together."""
    yielded = rounds.tokens / rounds.rounds
    nodes = 1 + rounds.nodes / rounds.rounds
    score = _pass(costs, nodes * batch, batch, context)
    cost = costs.drafters.get(setting.drafter)
    levels, asked = rounds.levels / rounds.rounds, rounds.asked / rounds.rounds
    draft = 0.0 if cost is None else cost.seconds(levels, batch) * (asked if cost.free else 1)
    rest = costs.rest_seconds(batch)
    return Priced(setting, batch, yielded, draft, score, rest, batch * yielded / (score + draft + rest))


def _pass(costs: CostModel, nodes: float, batch: int, context: float) -> float:
    """A pass of a mean width that is no whole number lies between its neighbours."""
    low = int(nodes)
    share = nodes - low
    below, above = (costs.pass_seconds(n, batch, context) for n in (low, low + 1))
    return below + share * (above - below)


@dataclass(frozen=True)
class Table:
    """What every setting did on every sample: the replays. costs by the drafters' names."""

    samples: Sequence[Sample]
    found: Mapping[Setting, Mapping[str, Rounds]]
    costs: CostModel

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(sample.kind for sample in self.samples))

    @property
    def context(self) -> float:
        """Mean length of a text half way through its answer."""
        lengths = [len(sample.prompt) + len(sample.answer) / 2 for sample in self.samples]
        return sum(lengths) / len(lengths)

    def rounds(self, setting: Setting, kind: str | None = None) -> Rounds:
        """Summed over the samples of a kind, or over all."""
        chosen = [sample.id for sample in self.samples if kind in (None, sample.kind)]
        return sum((self.found[setting][name] for name in chosen), Rounds(0, 0, 0, 0))

    def priced(self, setting: Setting, batch: int = 1, kind: str | None = None) -> Priced:
        return price(setting, self.rounds(setting, kind), self.costs, batch, self.context)

    def speedup(self, setting: Setting, batch: int = 1, kind: str | None = None) -> float:
        """Speed over plain decoding's at the same batch size."""
        return self.priced(setting, batch, kind).speed / self.priced(PLAIN, batch, kind).speed

    def ranked(self, batch: int = 1, kind: str | None = None) -> list[Setting]:
        """Settings by predicted speed, greatest first."""
        return sorted(self.found, key=lambda setting: -self.priced(setting, batch, kind).speed)

    def best_of_each(self, batch: int = 1, kind: str | None = None) -> list[Setting]:
        """The fastest setting of every drafter, fastest drafter first; plain among them."""
        best: dict[str, Setting] = {}
        for setting in self.ranked(batch, kind):
            best.setdefault(setting.drafter, setting)
        return list(best.values())

    def acceptance(self, setting: Setting) -> list[float]:
        """Share of all rounds in which the drafted token at level 1, 2, ... was kept."""
        rounds = self.rounds(setting)
        return [count / max(1, rounds.rounds) for count in rounds.kept]


def break_even(costs: CostModel, drafter: str, depths: Iterable[int], batch: int, context: float) -> list[float]:
    """Tokens that a round must write to be as fast as plain decoding, by depth of a chain."""
    plain = costs.round_seconds(batch, "none", 0, batch, context)
    return [costs.round_seconds(batch * (1 + d), drafter, d, batch, context) / plain for d in depths]
