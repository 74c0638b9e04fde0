"""Rounds as they happen, for whoever watches: a bounded queue per watcher, which loses rounds rather than delay any.

The entries are lines of a trace (docs/traces.md), without texts unless the server was told to show them. A watcher
first gets the header and, for every request that runs by then, how far it has come.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from outrider.engine.completion import Completion
from outrider.engine.engine import Engine
from outrider.engine.observe import Observer, RequestTrace
from outrider.engine.trace import RoundTrace, RowTrace
from outrider.traces.lines import Line, Lines

ENTRIES_KEPT = 256  # per watcher that does not read


@dataclass
class _Running:
    """A request that runs. begin: its line."""

    begin: Line
    rounds: int = 0
    written: int = 0
    released: int = 0
    text: str = ""


class RoundFeed(Observer):
    """An observer of `engine`; `async for entry in feed.watch()` on the loop. texts: whether entries show them."""

    def __init__(self, engine: Engine, *, texts: bool = False) -> None:
        self._lines = Lines(engine, texts=texts)
        self._texts = texts
        self._lock = threading.Lock()
        self._watchers: list[_Watcher] = []
        self._running: dict[int, _Running] = {}
        self._closed = False

    @property
    def detailed(self) -> bool:
        """Only while somebody watches."""
        return bool(self._watchers)

    # ---- in the engine's thread; without watchers nothing but a few counts are kept

    def began(self, request: RequestTrace) -> None:
        with self._lock:
            line = self._lines.request(request)
            self._running[request.request_id] = _Running(line)
            self._publish(line)

    def round_done(self, trace: RoundTrace) -> None:
        with self._lock:
            for row in trace.rows:
                self._count(row)
            if self._watchers and all(row.target_best for row in trace.rows):  # else it began before they came
                self._publish(self._lines.round(trace))

    def ended(self, request_id: int, completion: Completion) -> None:
        with self._lock:
            known = self._running.pop(request_id, None)
            if self._watchers:
                self._publish(self._lines.end(request_id, completion, known.released if known else 0))

    def close(self) -> None:
        """All watchers' streams end."""
        with self._lock:
            self._closed = True
            for watcher in self._watchers:
                watcher.give(None)

    # ---- on the loop

    async def watch(self, patience: float | None = None) -> AsyncIterator[Line | None]:
        """Every entry from now on; None whenever `patience` seconds bring nothing.

        `lost` counts the entries that this watcher was too slow for.
        """
        watcher = _Watcher(asyncio.get_running_loop())
        with self._lock:
            if self._closed:
                return
            opening = [self._lines.header(), *(_progress(one, self._texts) for one in self._running.values())]
            self._watchers.append(watcher)
        try:
            for line in opening:
                yield {**line, "lost": 0}
            async for entry in watcher.entries(patience):
                yield entry
        finally:
            with self._lock:
                self._watchers.remove(watcher)

    def _publish(self, line: Line) -> None:
        for watcher in self._watchers:
            watcher.give(line)

    def _count(self, row: RowTrace) -> None:
        if (known := self._running.get(row.request_id)) is None:
            return
        known.rounds += 1
        known.written += len(row.delivered)
        known.released += sum(map(len, row.texts))
        if self._texts:
            known.text += "".join(row.texts)


def _progress(one: _Running, texts: bool) -> Line:
    so_far = {"rounds": one.rounds, "written": one.written, "text": one.text if texts else None}
    return {**one.begin, "so_far": so_far}


class _Watcher:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Line | None] = asyncio.Queue(ENTRIES_KEPT)
        self._lost = 0

    def give(self, entry: Line | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put, entry)

    def _put(self, entry: Line | None) -> None:
        if entry is None and self._queue.full():
            self._queue.get_nowait()  # the end must find a place
        try:
            self._queue.put_nowait(entry and {**entry, "lost": self._lost})
        except asyncio.QueueFull:
            self._lost += 1

    async def entries(self, patience: float | None) -> AsyncIterator[Line | None]:
        while True:
            try:
                entry = await asyncio.wait_for(self._queue.get(), patience)
            except TimeoutError:
                yield None
                continue
            if entry is None:
                return
            yield entry
