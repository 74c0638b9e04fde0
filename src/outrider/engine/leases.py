"""Engines that share a target: no row ever serves two of them, and they compute in turns, whatever threads step them.

A target holds one pass between score and commit, so two engines amidst a round would take each other's.
Kept per target object, by identity, and only as long as the target lives. A holder that is gone holds nothing.
"""

import contextlib
import weakref
from threading import RLock
from typing import Any

from outrider.engine.turn import Turn


class Leases:
    """The rows of one target, each held by at most one holder (an engine's slots).

    turn: held by the thread that computes with the target.
    """

    def __init__(self) -> None:
        self.turn = Turn()
        self._holders: dict[int, weakref.ref[Any]] = {}

    def claim(self, row: int, holder: object) -> bool:
        """The row is `holder`'s from now on; False, and nothing changed, if somebody else holds it."""
        if not self.is_open(row, holder):
            return False
        self._holders[row] = weakref.ref(holder)
        return True

    def is_open(self, row: int, holder: object) -> bool:
        """Whether `holder` could claim the row, or holds it."""
        known = self._holders.get(row)
        return known is None or known() in (None, holder)

    def release(self, row: int) -> None:
        """Nobody holds the row."""
        self._holders.pop(row, None)


_known: dict[int, tuple[weakref.ref[Any], Leases]] = {}
_making = RLock()  # reentrant: the callback may come amidst the making


def leases_of(target: object) -> Leases:
    """The one book of this target's rows; a target that takes no weak references gets a book per call."""
    with _making:
        entry = _known.get(id(target))
        if entry is not None and entry[0]() is target:
            return entry[1]
        key, book = id(target), Leases()
        with contextlib.suppress(TypeError):
            _known[key] = (weakref.ref(target, lambda gone: _forget(key, gone)), book)
        return book


def _forget(key: int, gone: object) -> None:
    with _making:
        if key in _known and _known[key][0] is gone:
            del _known[key]
