"""The chance that a drafted token is kept if the one before it was: by drafter and position, and for one request.

All requests together give a prior for each position; a request's own history moves it quickly (a factor on all
positions, worth more than the prior after a few rounds).
"""

from dataclasses import dataclass, field

START = 0.7  # before any evidence
START_WEIGHT = 2.0
MEMORY = 400.0  # judged tokens per position after which old evidence is halved
ROW_WEIGHT = 2.0  # judged tokens of its own after which a request counts as much as the prior
HIGHEST = 0.995


@dataclass
class Ratio:
    """Kept over judged, with a prior."""

    kept: float = START * START_WEIGHT
    judged: float = START_WEIGHT

    @property
    def value(self) -> float:
        return self.kept / self.judged

    def learn(self, kept: bool) -> None:
        if self.judged > MEMORY:
            self.kept, self.judged = self.kept / 2, self.judged / 2
        self.kept += kept
        self.judged += 1


@dataclass
class _RowHistory:
    kept: float = 0.0
    expected: float = 0.0
    judged: float = 0.0


@dataclass
class Survival:
    """One drafter's record."""

    _positions: list[Ratio] = field(default_factory=list[Ratio])
    _rows: dict[int, _RowHistory] = field(default_factory=dict[int, _RowHistory])

    def learn(self, row: int, depth: int, accepted: int) -> None:
        """A tree `depth` deep of which `accepted` tokens were kept: positions up to the first rejected were judged."""
        history = self._rows.setdefault(row, _RowHistory())
        for position in range(min(accepted + 1, depth)):
            kept = position < accepted
            history.expected = history.expected * 0.97 + self._at(position).value
            history.kept = history.kept * 0.97 + kept
            history.judged = history.judged * 0.97 + 1
            self._at(position).learn(kept)

    def chance(self, row: int, position: int) -> float:
        """Chance that the token at this position (0 the first) is kept, given that it is judged."""
        history = self._rows.get(row)
        factor = 1.0
        if history and history.expected > 0:
            factor = (history.kept + ROW_WEIGHT) / (history.expected + ROW_WEIGHT)
        return min(HIGHEST, self._at(position).value * factor)

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)

    def _at(self, position: int) -> Ratio:
        """The position's record; a new one starts from the position before it."""
        while len(self._positions) <= position:
            before = self._positions[-1].value if self._positions else START
            self._positions.append(Ratio(before * START_WEIGHT, START_WEIGHT))
        return self._positions[position]
