"""Rounds as they happen, for whoever watches: a bounded queue per watcher, which loses rounds rather than delay any."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from outrider.engine.trace import RoundTrace

ROUNDS_KEPT = 256  # per watcher that does not read


class RoundFeed:
    """publish(trace) in the engine's thread; `async for round in feed.watch()` on the loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watchers: list[_Watcher] = []

    def publish(self, trace: RoundTrace) -> None:
        """Hand the round to all watchers; without any it costs nothing."""
        with self._lock:
            watchers = list(self._watchers)
        if watchers:
            entry = trace.to_dict()
            for watcher in watchers:
                watcher.give(entry)

    async def watch(self) -> AsyncIterator[dict[str, Any]]:
        """Every round from now on. `lost` counts the rounds that this watcher was too slow for."""
        watcher = _Watcher(asyncio.get_running_loop())
        with self._lock:
            self._watchers.append(watcher)
        try:
            while True:
                yield await watcher.take()
        finally:
            with self._lock:
                self._watchers.remove(watcher)


class _Watcher:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(ROUNDS_KEPT)
        self._lost = 0

    def give(self, entry: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put, entry)

    def _put(self, entry: dict[str, Any]) -> None:
        try:
            self._queue.put_nowait({**entry, "lost": self._lost})
        except asyncio.QueueFull:
            self._lost += 1

    async def take(self) -> dict[str, Any]:
        return await self._queue.get()
