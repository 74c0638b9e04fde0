"""What a policy has learned of one drafter: how far its drafts survive, how often it has one, and what asking costs.

Free drafters (their proposals need no model pass) are asked in every round, whether or not anything is scored: what
they would have drafted is compared with what was written, so their record is complete and costs nothing. The others pay
by the level of a draft, and must first read what was written since they were last asked.
"""

from dataclasses import dataclass, field

from outrider.policy.costs import Mean
from outrider.policy.hope import Hope
from outrider.policy.survival import FREE_PRIOR, MODEL_PRIOR, RowHistory, Survival, run_bucket
from outrider.types import Asked, Judged

BEHIND = 16  # a drafter that lacks more tokens than this reads them first, at a cost of its own
OFFER_PRIOR, USAGE_PRIOR, PRIOR_WEIGHT = 0.6, 0.5, 3
ENOUGH = 8  # proposals judged before a drafter that costs passes is asked for more than one row at a time


@dataclass(frozen=True)
class DrafterShape:
    """What a policy knows of a drafter beforehand. nodes_per_level: of its trees (1 for chains).

    free: proposing needs no model pass. ask: seconds to ask it for one row; level: seconds of one level of a draft;
    read: seconds per token that it must read first. All None until measured.
    """

    nodes_per_level: float = 1.0
    free: bool = False
    ask: float | None = None
    level: float | None = None
    read: float | None = None


@dataclass
class Record:
    """One drafter's record over all requests, and where it stands in each."""

    shape: DrafterShape
    ask: Mean = field(default_factory=Mean)
    level: Mean = field(default_factory=Mean)
    read: Mean = field(default_factory=Mean)
    usage: Mean = field(default_factory=lambda: _prior_mean(USAGE_PRIOR))
    hope: Hope = field(default_factory=Hope)
    num_judged: int = 0
    _survival: dict[int, Survival] = field(default_factory=dict[int, Survival])
    _histories: dict[tuple[int, bool], RowHistory] = field(default_factory=dict[tuple[int, bool], RowHistory])
    _offers: dict[int, Mean] = field(default_factory=dict[int, Mean])
    _runs: dict[int, int] = field(default_factory=dict[int, int])
    _seen: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        for mean, value in ((self.ask, self.shape.ask), (self.level, self.shape.level), (self.read, self.shape.read)):
            if value is not None:
                for _ in range(4):
                    mean.learn(value)

    @property
    def proven(self) -> bool:
        """Whether enough is known of it to ask it for many rows, and deep."""
        return self.shape.free or (self.level.known and self.num_judged >= ENOUGH)

    def run(self, row: int) -> int:
        """Tokens in a row that it had right up to now; 0 for drafters that are not asked in every round."""
        return self._runs.get(row, 0)

    def behind(self, row: int, context_length: int) -> int:
        """Tokens that it has not read yet."""
        return context_length - self._seen.get(row, 0)

    def reading(self, row: int, context_length: int) -> float:
        """Seconds until it can draft at all."""
        behind = self.behind(row, context_length)
        return behind * self.read.value if behind > BEHIND else 0.0

    def chance(self, row: int, warmth: int, level: int, said: float | None = None) -> float:
        """Chance that a node at this level (0 the first) is right if those above it are."""
        return self._of(warmth).chance(row, self.run(row) + level, said)

    def stage(self, row: int, level: int) -> int:
        """What `chance` depends on beside the confidence: levels of one stage have the same chance."""
        return run_bucket(self.run(row) + level)

    def offers(self, row: int) -> float:
        """Chance that it proposes anything now."""
        mean = self._offers.get(run_bucket(self.run(row)))
        return OFFER_PRIOR if mean is None else mean.value

    def learn_cost(self, asked: Asked, behind: int) -> None:
        """behind: tokens that it had to read first, over all rows."""
        if self.shape.free:
            self.ask.learn(asked.seconds / max(1, asked.num_rows))
        elif behind > BEHIND * asked.num_rows:
            drafting = asked.depth * self.level.value
            if self.level.known:
                self.read.learn(max(0.0, asked.seconds - drafting) / behind)
        elif asked.depth:
            self.level.learn(asked.seconds / asked.depth)
        else:
            self.ask.learn(asked.seconds / max(1, asked.num_rows))

    def learn(self, judged: Judged, warmth: int) -> None:
        """A proposal in hindsight."""
        run = self.run(judged.row)
        self.num_judged += 1
        self._offers.setdefault(run_bucket(run), _prior_mean(OFFER_PRIOR)).learn(float(judged.num_nodes > 0))
        self._of(warmth).learn(judged.row, run, judged.levels)
        right = judged.num_nodes > 0 and all(kept for _, kept in judged.levels)
        self._runs[judged.row] = run + len(judged.levels) if right else 0

    def overhear(self, row: int, right: int, wrong: bool) -> None:
        """What became of another drafter's draft in this row, while this one was not asked."""
        self._runs[row] = 0 if wrong else self._runs.get(row, 0) + right

    def read_up_to(self, row: int, context_length: int) -> None:
        self._seen[row] = context_length

    def forget(self, row: int) -> None:
        for unsaid in (True, False):
            self._histories.pop((row, unsaid), None)
        self._runs.pop(row, None)
        self._seen.pop(row, None)

    def knows(self, row: int) -> bool:
        """Whether it was ever asked for this row."""
        return row in self._seen

    def _of(self, warmth: int) -> Survival:
        prior = FREE_PRIOR if self.shape.free else MODEL_PRIOR
        return self._survival.setdefault(warmth, Survival(prior, self._histories))


def _prior_mean(value: float) -> Mean:
    mean = Mean()
    for _ in range(PRIOR_WEIGHT):
        mean.learn(value)
    return mean
