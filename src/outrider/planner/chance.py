"""How sure a plan is: predictions over resampled traffic, and real runs compared pair by pair.

Sources: Efron 1979 (the bootstrap: samples are drawn again with replacement, and the figure computed anew); Student
1908 (the error of a mean of few values).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from outrider.planner.predict import Table, price
from outrider.planner.replay import PLAIN, Rounds, Setting

DRAWS, SEED = 200, 0
LOW, HIGH = 5.0, 95.0  # per cent
FEWEST_SAMPLES, FEWEST_TOKENS = 5, 300  # fewer say too little of what other requests would do
T95 = (math.inf, 6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83)  # one-sided 95 %, by n - 1; then 1.8


@dataclass(frozen=True)
class Spread:
    """Nine in ten resampled traffics give a speed-up between these."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.2f}-{self.high:.2f}" if self.high < math.inf else "unknown"


def spread(table: Table, setting: Setting, batch: int = 1) -> Spread:
    """Of the predicted speed-up over plain decoding; everything is possible where there is one sample."""
    count = len(table.samples)
    if setting == PLAIN:
        return Spread(1.0, 1.0)
    if count < 2:
        return Spread(0.0, math.inf)
    each = [table.found[setting][sample.id] for sample in table.samples]
    columns = np.array([[one.tokens, one.rounds, one.nodes, one.levels, one.asked] for one in each])
    drawn = np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), size=DRAWS) @ columns
    plain = table.priced(PLAIN, batch).speed
    sums = [
        Rounds(tokens, rounds, nodes, levels, asked=asked) for tokens, rounds, nodes, levels, asked in drawn.tolist()
    ]
    gains = [price(setting, one, table.costs, batch, table.context).speed / plain for one in sums]
    low, high = np.percentile(gains, [LOW, HIGH])
    return Spread(float(low), float(high))


def enough(table: Table) -> bool:
    """Whether there is text enough to recommend anything by prediction alone."""
    return len(table.samples) >= FEWEST_SAMPLES and table.rounds(PLAIN).tokens >= FEWEST_TOKENS


@dataclass(frozen=True)
class Gain:
    """How much faster one was than another over n pairs of runs: the geometric mean, and its error as a factor."""

    ratio: float
    error: float
    pairs: int

    @property
    def sure(self) -> bool:
        """Faster by more than chance explains (with 95 %)."""
        return self.ratio > self.error

    def __str__(self) -> str:
        if self.error == math.inf:
            return f"{self.ratio:.2f}, error unknown from {self.pairs} run{'s' * (self.pairs != 1)}"
        return f"{self.ratio:.2f} ({self.ratio / self.error:.2f} to {self.ratio * self.error:.2f})"


def gain(one: Mapping[str, float], other: Mapping[str, float]) -> Gain:
    """Speeds by what was run; what only one of them has run is left out."""
    logs = [math.log(one[name] / other[name]) for name in one if other.get(name) and one[name]]
    if not logs:
        return Gain(1.0, math.inf, 0)
    if len(logs) == 1:
        return Gain(math.exp(logs[0]), math.inf, 1)
    factor = T95[len(logs) - 1] if len(logs) <= len(T95) else 1.8
    return Gain(math.exp(mean(logs)), math.exp(factor * stdev(logs) / math.sqrt(len(logs))), len(logs))
