"""What asking a drafter should bring in the coming round, before it is asked: tokens gained minus what time is worth.

A surplus is what a row would write beyond plain decoding's one token, minus the extra seconds times their worth (tokens
that could be written in them otherwise). A draft pass serves all rows that are asked, so a drafter that costs passes is
judged for all of them together: at every depth, the rows that gain are taken, and the depth of the greatest sum wins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outrider.policy.records import Record

PATIENCE = 6  # depths beyond the best so far that are looked at, because a pass may grow in steps
FAINT = 0.02  # survival below which deeper levels are not looked at


@dataclass(frozen=True)
class Seeker:
    """A row that may ask. limit: levels it has room for; alone: its surplus without the drafter in question.

    horizon: tokens over which reading a text for the first time is spread.
    """

    row: int
    warmth: int
    context_length: int
    limit: int
    horizon: float
    alone: float = 0.0


@dataclass(frozen=True)
class Asking:
    """A drafter to ask for these rows at this depth. surplus, gained (tokens), num_nodes: of all rows together."""

    depth: int = 0
    rows: tuple[int, ...] = ()
    surplus: float = 0.0
    gained: float = 0.0
    num_nodes: int = 0


@dataclass(frozen=True)
class Outlook:
    """seconds(N): of a pass. num_rows: that share it. worth: tokens per second."""

    seconds: Callable[[int], float]
    num_rows: int
    worth: float

    def nodes(self, count: int) -> float:
        """What `count` drafted nodes cost, in tokens."""
        return self.worth * (self.seconds(self.num_rows + count) - self.seconds(self.num_rows))

    def free(self, record: Record, seeker: Seeker) -> float:
        """The surplus of asking a free drafter, of which only what pays is scored."""
        gained, best, best_depth, alive = 0.0, 0.0, 0, 1.0
        for depth in range(1, seeker.limit + 1):
            alive *= record.chance(seeker.row, seeker.warmth, depth - 1)
            gained += alive
            if (surplus := record.hope.trust * gained - self.nodes(depth)) > best:
                best, best_depth = surplus, depth
            if alive < FAINT or depth - best_depth >= PATIENCE:
                break
        return record.offers(seeker.row) * best - self.worth * record.ask.value

    def paid(self, record: Record, seekers: Sequence[Seeker]) -> Asking:
        """The depth and rows of greatest surplus for a drafter that costs passes; none if no depth pays.

        If the round would be faster than what time was worth, its own speed is what time is worth (see cut.py).
        """
        found = self._paid(record, seekers)
        speed = self._speed(found, record)
        return replace(self, worth=speed)._paid(record, seekers) if speed > self.worth else found

    def _speed(self, asking: Asking, record: Record) -> float:
        """Tokens per second of a round that does this."""
        seconds = self.seconds(self.num_rows)
        if seconds <= 0:
            return 0.0
        spent = asking.depth * record.level.value + self.seconds(self.num_rows + asking.num_nodes)
        return (self.num_rows + asking.gained) / max(spent, 1e-12)

    def _paid(self, record: Record, seekers: Sequence[Seeker]) -> Asking:
        best = Asking()
        alive, gained = [1.0] * len(seekers), [0.0] * len(seekers)
        for depth in range(1, max((seeker.limit for seeker in seekers), default=0) + 1):
            for place, seeker in enumerate(seekers):
                if depth <= seeker.limit:
                    alive[place] *= record.chance(seeker.row, seeker.warmth, depth - 1)
                    gained[place] += record.hope.trust * alive[place]
            asking = self._at(depth, record, seekers, gained)
            best = max(best, asking, key=lambda one: one.surplus)
            if max(alive) < FAINT or depth - best.depth >= PATIENCE:
                break
        return best

    def _at(self, depth: int, record: Record, seekers: Sequence[Seeker], gained: Sequence[float]) -> Asking:
        """The rows that gain at this depth; all draft it, and the draft's passes are paid once."""
        each = round(depth * record.shape.nodes_per_level)
        price = self.nodes(each * len(seekers)) / len(seekers)
        nets = [
            (gain - price - self._reading(record, seeker, gain) - seeker.alone, seeker.row, gain)
            for gain, seeker in zip(gained, seekers, strict=True)
        ]
        rows = tuple(row for net, row, _ in nets if net > 0)
        asking = record.ask.value * len(rows) if record.shape.free else record.level.value * depth
        surplus = sum(net for net, _, _ in nets if net > 0) - self.worth * asking
        gain = sum(gain for net, _, gain in nets if net > 0)
        return Asking(depth, rows, surplus, gain, each * len(rows))

    def _reading(self, record: Record, seeker: Seeker, gain: float) -> float:
        """Tokens that this round's share of reading up costs."""
        rounds = max(1.0, seeker.horizon * record.usage.value / (1 + gain))
        return self.worth * record.reading(seeker.row, seeker.context_length) / rounds
