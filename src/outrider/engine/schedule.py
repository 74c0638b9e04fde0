"""Rows come and go: admission, chunked prefill, the check of invariant I1, and release.

First come, first served. A step computes at most one chunk of prompt tokens, so that long prompts do not stall rows
that are already writing.
"""

import warnings
from collections import deque

from outrider.engine.drafting import Drafting
from outrider.engine.observe import Observers
from outrider.engine.row import Row
from outrider.engine.slots import Slots
from outrider.engine.watch import Stopwatch
from outrider.errors import CapacityError, OutriderWarning, TargetError
from outrider.policy.base import Policy
from outrider.targets.base import Target

MAX_MISMATCHES = 8  # a cache of a wrong length is computed again, but not for ever


class Schedule:
    """The waiting and the running rows of one engine."""

    def __init__(
        self,
        target: Target,
        drafting: Drafting,
        policy: Policy,
        observers: Observers,
        *,
        prefill_chunk: int,
        reuse_prefixes: bool,
        max_waiting: int | None,
    ) -> None:
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []
        self.slots = Slots(target, reuse=reuse_prefixes)
        self._target = target
        self._drafting = drafting
        self._policy = policy
        self._observers = observers
        self._prefill_chunk = prefill_chunk
        self._max_waiting = max_waiting

    def check_room(self) -> None:
        """CapacityError if the queue is full."""
        if self._max_waiting is not None and len(self.waiting) >= self._max_waiting:
            raise CapacityError(f"{len(self.waiting)} requests are waiting, which is the limit; try again later")

    def admit(self) -> None:
        """Cancel what is late, then give waiting requests a row."""
        for row in [*self.waiting, *self.running]:
            if row.is_late:
                row.tally.warnings.append(f"cancelled after its timeout of {row.request.timeout} s")
                row.finish("cancelled")
        self.release()
        self.slots.recover([row.cache_row for row in self.running])
        while self.waiting and self.slots.available:
            if self.waiting[0] not in self.running:  # an interrupt may have come after it was admitted
                self._admit_row(self.waiting[0])
            self.waiting.popleft()
        if self.waiting and not self.running:
            raise CapacityError(
                f"all {self._target.info.max_rows} cache rows of {self._target.info.name} are held by other engines; "
                "let their requests finish, give up those engines, or load the target with a larger max_rows"
            )

    def prefill(self) -> list[Row]:
        """Compute at most one chunk of prompt tokens; returns the rows that are ready for a round."""
        budget = self._prefill_chunk
        for row in self.running:
            if not self._check_cache(row):
                continue
            size = min(budget, len(row.tokens) - 1 - row.prefilled)
            if size > 0:
                self._prefill_row(row, size)
                budget -= size
        return [row for row in self.running if not row.needs_prefill and row.finish_reason is None]

    def release(self) -> None:
        """Finished rows leave; their drafters forget them and their cache rows are free, or warm, at once."""
        for row in [row for row in self.running if row.finish_reason is not None]:
            self._leave(row)
            self.running.remove(row)
            self._observers.ended(row)
        for row in [row for row in self.waiting if row.finish_reason is not None]:
            self.waiting.remove(row)  # in place: other threads may append
            self._observers.ended(row)

    def _admit_row(self, row: Row) -> None:
        held = [(other.cache_row, other.tokens[: other.prefilled]) for other in self.running]
        try:
            row.slot, row.prefilled = self.slots.take(row.tokens, held)
            row.tally.reused = row.prefilled
            self.running.append(row)
        except Exception as error:  # of the target
            row.finish("error", error)
            self.slots.recover([other.cache_row for other in self.running])
            self._observers.ended(row)
        else:
            self._observers.began(row)

    def _leave(self, row: Row) -> None:
        """Every part may be done twice: after an interrupt the row is still here, and leaves at the next release."""
        sound = row.finish_reason != "error" and self._target.length(row.cache_row) == row.prefilled
        self.slots.give_back(row.cache_row, row.tokens[: row.prefilled] if sound else None)
        self._drafting.end(row)
        self._end_policy(row)

    def _end_policy(self, row: Row) -> None:
        try:
            self._policy.end(row.id)
        except Exception as error:
            warnings.warn(f"the policy failed at the end of a request: {error!r}", OutriderWarning, stacklevel=2)

    def _prefill_row(self, row: Row, size: int) -> None:
        watch = Stopwatch()
        try:
            with watch("prefill"):
                self._target.prefill([row.cache_row], [row.tokens[row.prefilled : row.prefilled + size]])
            row.prefilled += size
        except Exception as error:
            row.finish("error", error)
        row.tally.seconds += watch.read()

    def _check_cache(self, row: Row) -> bool:
        """Invariant I1. A cache of another length (a roll-back that failed, an interrupt) is computed again.

        False: it never came right, without a token in between, and the request has ended with a TargetError.
        """
        found = self._target.length(row.cache_row)
        if found == row.prefilled:
            return True
        row.mismatches += 1
        if row.mismatches > MAX_MISMATCHES:
            what = f"says that a row holds {found} tokens where {row.prefilled} were computed"
            row.finish("error", TargetError(f"{self._target.info.name} {what}, {row.mismatches} times"))
            return False
        self._target.free([row.cache_row])
        row.prefilled = 0
        row.tally.recomputed += 1
        return True
