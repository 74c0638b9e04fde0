"""Times passes of a target: by width, by number of rows, by length of the context. The target must be idle.

Every time is the median of interleaved repeats after a warm-up; where passes are slow, fewer widths are measured, the
telling ones first, until the time is used up.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from outrider.targets.base import Target
from outrider.types import DraftTree, pack

WIDTHS = (1, 8, 4, 2, 16, 5, 3, 9, 6, 12, 32, 24, 7, 10, 17, 20, 48, 64)
REPEATS = 5
WIDE = 8  # the width that is compared with 1 over a longer text
FIRST_CHUNK = 32


@dataclass(frozen=True)
class Passes:
    """table: seconds of a pass by width, one row of `context` tokens; the others as in CostModel."""

    table: dict[int, float]
    context: int
    row: float
    row_token: float
    node_token: float


@dataclass
class PassTimer:
    """text: at least two token ids, repeated as often as needed. seconds: how long all may take."""

    target: Target
    text: Sequence[int]
    seconds: float
    max_context: int = 256
    _end: float = field(default=0.0, init=False)

    def run(self) -> Passes:
        self._end = time.perf_counter() + self.seconds
        with self._free_rows():
            context = self._fill(0, 0, self.max_context, 0.15 * self.seconds)
            table = self._by_width(context, time.perf_counter() + 0.6 * self.seconds)
            row = self._row(context, table)
            row_token, node_token = self._tokens(context, table)
        return Passes(dict(sorted(table.items())), context, row, row_token, node_token)

    @contextmanager
    def _free_rows(self) -> Generator[None]:
        rows = list(range(self.target.info.max_rows))
        self.target.free(rows)
        try:
            yield
        finally:
            self.target.free(rows)

    def _fill(self, row: int, held: int, wanted: int, seconds: float) -> int:
        """Tokens that the row holds afterwards: as many as wanted, or as could be read in that time."""
        limit = min(wanted, self.target.info.max_length - 72)
        end, length = time.perf_counter() + seconds, held
        while length < limit and (length == held or time.perf_counter() < end):
            size = min(FIRST_CHUNK, limit - length)
            self.target.prefill([row], [self._piece(length, size)])
            length += size
        return max(length, 1)

    def _piece(self, start: int, size: int) -> list[int]:
        return [self.text[(start + i) % len(self.text)] for i in range(size)]

    def _by_width(self, context: int, end: float) -> dict[int, float]:
        spent, first = dict[int, list[float]](), dict[int, float]()
        for repeat in range(REPEATS + 1):
            for width in WIDTHS if repeat == 0 else [*spent]:
                if len(spent) >= 2 and time.perf_counter() > end:
                    break
                seconds = self._pass([0], width, context)
                spent.setdefault(width, [])
                first.setdefault(width, seconds)
                if repeat or seconds > 0.1:  # the first of a quick pass only warms up
                    spent[width].append(seconds)
        return {width: median(seconds or [first[width]]) for width, seconds in spent.items()}

    def _row(self, context: int, table: dict[int, float]) -> float:
        """Seconds of a further row at an equal number of nodes."""
        num_rows = min(4, self.target.info.max_rows)
        if num_rows < 2 or num_rows not in table:
            return 0.0
        rows = list(range(num_rows))
        for row in rows[1:]:
            self.target.copy(0, row, context)
        apart, together = self._medians(
            lambda: self._pass([0], num_rows, context), lambda: self._pass(rows, 1, context)
        )
        self.target.free(rows[1:])
        return max(0.0, together - apart) / (num_rows - 1)

    def _tokens(self, context: int, table: dict[int, float]) -> tuple[float, float]:
        """Seconds of a further token of context, per row and per node: from two widths over a text and a longer one."""
        row = min(1, self.target.info.max_rows - 1)  # beside the shorter text, if there is a second row
        if row:
            self.target.copy(0, row, context)
        longer = self._fill(row, context, 3 * context, 0.15 * self.seconds)
        if longer < 1.25 * context:
            return 0.0, 0.0
        wide = WIDE if WIDE in table else max(table)
        lengths = (longer, context if row else None)
        growth = [self._growth(row, width, *lengths, table[width]) / (longer - context) for width in (1, wide)]
        node = max(0.0, growth[1] - growth[0]) / (wide - 1)
        return max(0.0, growth[0] - node), node

    def _growth(self, row: int, width: int, longer: int, shorter: int | None, known: float) -> float:
        """Seconds that a pass over the longer text takes more. shorter: what row 0 holds; None: `known` is its time."""
        if shorter is None:
            return self._medians(lambda: self._pass([row], width, longer))[0] - known
        long, short = self._medians(lambda: self._pass([row], width, longer), lambda: self._pass([0], width, shorter))
        return long - short

    def _medians(self, *ways: Callable[[], float]) -> list[float]:
        """Of interleaved repeats, after a first that only warms up: two at least, more while there is time."""
        rounds = [[way() for way in ways] for _ in range(2)]
        while len(rounds) <= REPEATS and time.perf_counter() < self._end:
            rounds.append([way() for way in ways])
        return [median(times) for times in zip(*rounds[1:], strict=True)]

    def _pass(self, rows: Sequence[int], width: int, context: int) -> float:
        """Seconds of one pass over `width` nodes in each row; nothing is committed."""
        chain = self._piece(context, width)
        trees = [DraftTree.chain(chain[0], chain[1:]) for _ in rows]
        packed = pack(trees, rows, [context] * len(rows), self.target.info.device)
        start = time.perf_counter()
        self.target.score(packed).logits[0, 0].item()  # waits for a device that runs behind
        return time.perf_counter() - start
