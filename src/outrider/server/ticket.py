"""The event loop's side of a request: its jobs, their updates, and the news that the client has left."""

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import suppress

from starlette.types import Receive

from outrider.engine.completion import Completion
from outrider.engine.request import Request
from outrider.server.job import Job, Update
from outrider.server.runner import EngineThread


class ClientGone(Exception):
    """The client closed the connection; nobody is left to answer."""


class Ticket:
    """Jobs that answer one HTTP request. allowed: seconds that they may take."""

    def __init__(
        self,
        runner: EngineThread,
        requests: Sequence[Request],
        *,
        client: Hashable,
        request_id: str,
        allowed: float,
    ) -> None:
        self._runner = runner
        self._loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[Update] = asyncio.Queue()  # bounded by what the jobs may write
        self.jobs = [
            Job(request, self._sink, index, client, request_id, time.monotonic() + allowed, allowed)
            for index, request in enumerate(requests)
        ]

    def submit(self) -> None:
        """Queue all jobs. Raises CapacityError or ShuttingDown."""
        self._runner.submit(self.jobs)

    def cancel(self) -> None:
        """End whatever still runs."""
        for job in self.jobs:
            self._runner.cancel(job)

    def _sink(self, update: Update) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._updates.put_nowait, update)

    async def updates(self, patience: float | None = None) -> AsyncIterator[Update | None]:
        """Every update until all jobs have ended; None whenever `patience` seconds bring nothing."""
        open_jobs = len(self.jobs)
        while open_jobs:
            try:
                update = await asyncio.wait_for(self._updates.get(), patience)
            except TimeoutError:
                yield None
                continue
            open_jobs -= update.last
            yield update

    async def completions(self, receive: Receive) -> list[Completion]:
        """The answers in order. Raises a job's own error (the others are cancelled), or ClientGone."""
        collecting = asyncio.create_task(self._collect())
        leaving = asyncio.create_task(disconnected(receive))
        try:
            await asyncio.wait({collecting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                raise ClientGone
            return collecting.result()
        finally:
            for task in (collecting, leaving):
                task.cancel()
            self.cancel()

    async def _collect(self) -> list[Completion]:
        found: dict[int, Completion] = {}
        async for update in self.updates():
            if update is None:
                continue
            if update.error is not None:
                raise update.error
            if update.completion is not None:
                found[update.index] = update.completion
        return [found[index] for index in range(len(self.jobs))]


async def disconnected(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
