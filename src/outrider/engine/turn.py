"""A reentrant lock that is fair: threads hold it in the order in which they came.

A plain lock would not do for engines that share a target: who releases it and at once wants it again, as a thread that
steps an engine does, would get it again and again.
"""

from collections import deque
from threading import Condition, get_ident


class Turn:
    """`with turn:` waits until all who came before are done; a thread that has its turn may take it again within."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._queue: deque[object] = deque()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        with self._changed:
            if self._owner != get_ident():
                self._wait()
                self._owner = get_ident()
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._changed.notify_all()

    def _wait(self) -> None:
        ticket = object()
        self._queue.append(ticket)
        try:
            self._changed.wait_for(lambda: self._owner is None and self._queue[0] is ticket)
        finally:
            self._queue.remove(ticket)  # an interrupt may have ended the wait
            self._changed.notify_all()
