"""The chance that a drafted token is right if those before it were: by drafter, run of successes, and confidence.

What is known of a proposal's next level: how many tokens in a row this drafter had right up to there (across rounds,
for drafters that are asked in every round; within the draft, for others), the drafter's own confidence, and how it
fares with this very request. A cell (run, confidence) holds what came true over what was expected, so that confidence
is taken at its word until experience corrects it. All requests share the cells; a request's own factor moves within a
few tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

FREE_PRIOR = (0.40, 0.55, 0.70, 0.82, 0.90, 0.94)  # by run of successes: 0, 1, 2-3, 4-7, 8-15, more
MODEL_PRIOR = (0.70, 0.70, 0.70, 0.70, 0.70, 0.70)
CELL_WEIGHT = 2.0  # judged tokens that the prior of a cell is worth
CELL_MEMORY = 250.0  # judged tokens of a cell after which old evidence is halved
ROW_WEIGHT = 2.5  # expected successes, and failures, of its own after which a request counts as much as the prior
ROW_FADE = 0.96
HIGHEST = 0.995


def run_bucket(run: int) -> int:
    """Runs of successes by order of magnitude: 0, 1, 2-3, 4-7, 8-15, more."""
    return min(run.bit_length(), len(FREE_PRIOR) - 1)


def confidence_bucket(said: float | None) -> int:
    """Ten equal steps; -1 for no confidence."""
    return -1 if said is None else min(9, int(said * 10))


@dataclass
class _Cell:
    came_true: float = 0.0
    expected: float = 0.0
    judged: float = 0.0

    def factor(self, base: float) -> float:
        """What came true over what was expected, and in the beginning 1."""
        return (self.came_true + CELL_WEIGHT * base) / (self.expected + CELL_WEIGHT * base)

    def learn(self, base: float, kept: bool) -> None:
        if self.judged > CELL_MEMORY:
            self.came_true, self.expected, self.judged = self.came_true / 2, self.expected / 2, self.judged / 2
        self.came_true += kept
        self.expected += base
        self.judged += 1


@dataclass
class RowHistory:
    """Judged tokens of one request: how many came true and how many did not, and what all requests let expect."""

    judged: float = 0.0
    came_true: float = 0.0
    expected: float = 0.0

    def applied_to(self, chance: float) -> float:
        """The chance for this request: its odds are moved by what came true and what failed, over the expected."""
        better = (self.came_true + ROW_WEIGHT) / (self.expected + ROW_WEIGHT)
        worse = (self.judged - self.came_true + ROW_WEIGHT) / (self.judged - self.expected + ROW_WEIGHT)
        right, wrong = chance * better, (1 - chance) * worse
        return min(HIGHEST, right / (right + wrong))

    def learn(self, chance: float, kept: bool) -> None:
        self.judged = self.judged * ROW_FADE + 1
        self.came_true = self.came_true * ROW_FADE + kept
        self.expected = self.expected * ROW_FADE + chance


@dataclass
class Survival:
    """One drafter's record. prior: chances by run of successes, before any evidence, where it gives no confidence.

    histories: of single requests, by row and whether it is the drafter's confidence that they correct.
    """

    prior: Sequence[float] = FREE_PRIOR
    histories: dict[tuple[int, bool], RowHistory] = field(default_factory=dict[tuple[int, bool], RowHistory])
    _cells: dict[tuple[int, int], _Cell] = field(default_factory=dict[tuple[int, int], _Cell])

    def chance(self, row: int, run: int, said: float | None = None) -> float:
        """Chance that a level is right after `run` right ones. said: by the drafter itself; None before it is asked."""
        history = self.histories.get((row, said is None))
        common = self._common(run, said)
        return history.applied_to(common) if history else common

    def learn(self, row: int, run: int, levels: Sequence[tuple[float | None, bool]]) -> None:
        """The judged levels of one proposal (see types.Judged) that began after `run` successes.

        Each level teaches twice: what to expect before asking, and what the drafter's confidence is worth.
        """
        for place, (said, kept) in enumerate(levels):
            self._learn(row, run + place, None, kept)
            if said is not None:
                self._learn(row, run + place, said, kept)

    def _learn(self, row: int, run: int, said: float | None, kept: bool) -> None:
        history = self.histories.setdefault((row, said is None), RowHistory())
        history.learn(self._common(run, said), kept)
        self._cell(run, said).learn(self._base(run, said), kept)

    def _common(self, run: int, said: float | None) -> float:
        cell = self._cells.get((run_bucket(run), confidence_bucket(said)))
        base = self._base(run, said)
        return min(HIGHEST, base * cell.factor(base)) if cell else base

    def _base(self, run: int, said: float | None) -> float:
        return self.prior[run_bucket(run)] if said is None else max(0.01, min(HIGHEST, said))

    def _cell(self, run: int, said: float | None) -> _Cell:
        return self._cells.setdefault((run_bucket(run), confidence_bucket(said)), _Cell())
