"""Which cache row serves which request, and which finished texts stay warm for prompts that begin like them.

With reuse, a finished row's cache is kept until its place is needed. A new prompt takes the longest common prefix it
can find: a warm row that the prompt continues is taken over, any other row (a running one too) is copied from.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from outrider.engine.leases import leases_of
from outrider.targets.base import Target

MIN_REUSED = 8  # a shorter common prefix is not worth a copy


class Slots:
    """The target's rows. Texts are what a row's cache holds; the caller says what a row holds when it gives it back."""

    def __init__(self, target: Target, *, reuse: bool) -> None:
        self._target = target
        self._reuse = reuse
        self._leases = leases_of(target)
        self._free = list(reversed(range(target.info.max_rows)))
        self._warm: OrderedDict[int, list[int]] = OrderedDict()  # oldest first

    @property
    def available(self) -> bool:
        return bool(self._warm) or self._has_free

    def take(self, prompt: Sequence[int], running: Iterable[tuple[int, Sequence[int]]] = ()) -> tuple[int, int]:
        """(row, tokens of the prompt that its cache already holds). running: (row, text its cache holds)."""
        source, shared = self._best_source(prompt, running)
        if shared < MIN_REUSED:
            return self._fresh(None), 0
        if source in self._warm and (not self._has_free or shared == len(self._warm[source])):
            del self._warm[source]
            self._target.truncate(source, shared)
            return source, shared
        if not self._has_free and len(self._warm) == 1 and source in self._warm:
            return self._fresh(None), 0
        slot = self._fresh(source)
        self._target.copy(source, slot, shared)
        return slot, shared

    def give_back(self, slot: int, text: Sequence[int] | None) -> None:
        """The row is over. text: what its cache holds, to stay warm; None if it cannot be trusted.

        A row that was given back already stays as it is.
        """
        if slot in self._free or slot in self._warm:
            return
        if self._reuse and text:
            self._warm[slot] = list(text)
            return
        self._target.free([slot])
        self._free.append(slot)
        self._leases.release(slot)

    def recover(self, in_use: Collection[int]) -> None:
        """Give back the rows that nobody holds: an interrupt or a fault came between the taking and the use."""
        for slot in range(self._target.info.max_rows):
            if slot not in in_use:
                self.give_back(slot, None)

    def drop_warm(self) -> bool:
        """Free all warm rows, as when memory is short; returns whether there were any."""
        slots = [*self._warm]
        for slot in slots:
            del self._warm[slot]
            self.give_back(slot, None)
        return bool(slots)

    @property
    def _has_free(self) -> bool:
        return any(self._leases.is_open(slot, self) for slot in self._free)

    def _best_source(self, prompt: Sequence[int], running: Iterable[tuple[int, Sequence[int]]]) -> tuple[int, int]:
        if not self._reuse:
            return -1, 0
        limit = len(prompt) - 1  # the last token is the root, which is never in the cache
        held = [*self._warm.items(), *running]
        return max(((slot, _common(prompt, text, limit)) for slot, text in held), key=lambda x: x[1], default=(-1, 0))

    def _fresh(self, keep: int | None) -> int:
        """A row with nothing in it, which other engines on this target leave alone until it is given back."""
        for slot in reversed(self._free):
            if self._leases.claim(slot, self):
                self._free.remove(slot)
                self._target.free([slot])  # an engine that is gone may have left something
                return slot
        return self._evict(keep)

    def _evict(self, keep: int | None) -> int:
        slot = next(slot for slot in self._warm if slot != keep)
        del self._warm[slot]
        self._target.free([slot])
        return slot


def _common(one: Sequence[int], other: Sequence[int], limit: int) -> int:
    """Length of the longest common prefix, at most `limit`."""
    size = min(len(one), len(other), limit)
    if list(one[:size]) == list(other[:size]):
        return size
    return next(i for i in range(size) if one[i] != other[i])
