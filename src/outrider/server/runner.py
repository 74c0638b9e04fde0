"""The engine's thread: the only place that touches the engine. Others hand it jobs and get updates through sinks.

Between two rounds it takes cancellations, gives free rows to waiting jobs in fair order, and delivers what the round
wrote. A sink never waits for its reader, so a slow reader delays nobody. A job that is cancelled leaves within a round.
"""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from outrider.engine.completion import TokenEvent
from outrider.engine.engine import Engine
from outrider.errors import CapacityError, EngineError, OutriderError
from outrider.server.job import Job, Update
from outrider.server.queue import FairQueue

MAX_FAILED_STEPS = 3  # in a row, before every running job has to go on by itself
MAX_FAILED_BATCHES = 3  # in a row, before the server calls itself not ready


class Observer(Protocol):
    """Told in the engine's thread about every job that ends."""

    def job_ended(self, job: Job, update: Update) -> None: ...


class ShuttingDown(OutriderError):
    """The server takes no new requests."""


class DeadlineExceeded(OutriderError):
    """A request took longer than it was allowed."""


class EngineThread:
    """Runs jobs on `engine`. max_waiting: most jobs in the queue. Use: start(), submit(...), cancel(...), stop(...)."""

    def __init__(self, engine: Engine, *, max_waiting: int = 64, observer: Observer | None = None) -> None:
        self.engine = engine
        self._max_rows = engine.target.info.max_rows
        self._max_waiting = max_waiting
        self._observer = observer
        self._changed = threading.Condition()
        self._queue: FairQueue[Job] = FairQueue()
        self._active: list[Job] = []
        self._cancelled: list[Job] = []
        self._draining = False
        self._stopping = False
        self._failed_steps = 0
        self._failed_batches = 0
        self._thread = threading.Thread(target=self._run, name="outrider-engine", daemon=True)

    # ---- from any thread

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs and its target answers; one good round is enough to be alive again."""
        return self._thread.is_alive() and self._failed_batches < MAX_FAILED_BATCHES

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def num_waiting(self) -> int:
        with self._changed:
            return len(self._queue)

    @property
    def num_running(self) -> int:
        return len(self._active)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, all or none. Raises CapacityError if they find no place, ShuttingDown after `drain`."""
        with self._changed:
            if self._draining or self._stopping:
                raise ShuttingDown("the server is shutting down; try another one, or this one again later")
            free = max(0, self._max_rows - len(self._active)) + self._max_waiting
            if len(self._queue) + len(jobs) > free:
                raise CapacityError(
                    f"{len(self._queue)} requests are waiting and the limit is {self._max_waiting}; try again later"
                )
            for job in jobs:
                self._queue.push(job.client, job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """End a job at its last committed token, within one round; nothing happens to one that has ended."""
        with self._changed:
            if not job.done:
                job.cancelled = True
                self._cancelled.append(job)
                self._changed.notify()

    def drain(self) -> None:
        """Take no new jobs; what waits and what runs goes on."""
        with self._changed:
            self._draining = True

    def wait_idle(self, timeout: float) -> bool:
        """True as soon as nothing waits or runs, False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._active, timeout)

    def stop(self, timeout: float = 10.0) -> None:
        """End every job with ShuttingDown, and the thread."""
        with self._changed:
            self._draining = self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping:
            self._wait_for_work()
            self._take_cancellations()
            self._admit()
            if self._active and not self._stopping:
                self._step()
            self._deliver()
        self._end_all(ShuttingDown("the server was shut down before this answer was complete"))

    def _wait_for_work(self) -> None:
        with self._changed:
            if not (self._active or self._queue):
                self._changed.notify_all()  # wait_idle
            self._changed.wait_for(lambda: self._stopping or self._active or self._queue or self._cancelled)

    def _take_cancellations(self) -> None:
        with self._changed:
            cancelled, self._cancelled = self._cancelled, []
            waiting = [job for job in cancelled if self._queue.remove(job)]
        for job in cancelled:
            if job.handle is not None:
                job.handle.cancel()
        for job in waiting:
            self._end(job, Update(job.index, error=EngineError("cancelled while it waited")))

    def _admit(self) -> None:
        """Give free rows to waiting jobs, in fair order; jobs past their deadline leave the queue."""
        now = time.monotonic()
        with self._changed:
            late = [job for job in self._queue if job.is_late(now)]
            late = [job for job in late if self._queue.remove(job)]
        for job in late:
            self._end(job, Update(job.index, error=_too_late(job)))
        while len(self._active) < self._max_rows:
            with self._changed:
                if not self._queue:
                    return
                job = self._queue.pop()
            self._begin(job)

    def _begin(self, job: Job) -> None:
        job.times.started = time.monotonic()
        try:
            job.handle = self.engine.submit(job.request)
        except Exception as error:
            self._end(job, Update(job.index, error=error))
            return
        self._active.append(job)

    def _step(self) -> None:
        """One round. A target that keeps failing ends the jobs that it cannot serve alone; the queue is kept."""
        try:
            self.engine.step()
            self._failed_steps = self._failed_batches = 0
        except Exception as error:
            self._failed_steps += 1
            if self._failed_steps >= MAX_FAILED_STEPS:
                self._failed_steps = 0
                self._isolate(error)

    def _isolate(self, error: Exception) -> None:
        """Rounds of one row each: the jobs at fault end, and the others go on. Without any, the target is down."""
        try:
            well = self.engine.isolate()
        except Exception:  # it cannot even be asked
            well = False
            self._fail_active(error)
        self._failed_batches = 0 if well else self._failed_batches + 1

    def _fail_active(self, error: Exception) -> None:
        for job in list(self._active):
            if job.handle is not None:
                job.handle.cancel()
            self._end(job, Update(job.index, error=error))

    def _deliver(self) -> None:
        now = time.monotonic()
        for job in list(self._active):
            if job.handle is None:
                continue
            if not job.handle.done and job.is_late(now):
                job.handle.cancel()
            events = job.handle.take_events()
            job.times.see(events, now)
            if job.handle.done:
                self._end(job, _last_update(job, events, now))
            elif events:
                job.sink(Update(job.index, events))

    def _end(self, job: Job, update: Update) -> None:
        job.done = True
        job.times.ended = time.monotonic()
        if job in self._active:
            self._active.remove(job)
        if self._observer is not None:
            self._observer.job_ended(job, update)
        job.sink(update)

    def _end_all(self, error: Exception) -> None:
        self._fail_active(error)
        with self._changed:
            waiting = list(self._queue)
            for job in waiting:
                self._queue.remove(job)
        for job in waiting:
            self._end(job, Update(job.index, error=error))
        with self._changed:
            self._changed.notify_all()


def _last_update(job: Job, events: Sequence[TokenEvent], now: float) -> Update:
    assert job.handle is not None
    completion = job.handle.completion
    if completion.error is not None:
        return Update(job.index, events, error=completion.error)
    if completion.finish_reason == "cancelled" and not job.cancelled and job.is_late(now):
        return Update(job.index, events, error=_too_late(job))
    return Update(job.index, events, completion)


def _too_late(job: Job) -> DeadlineExceeded:
    seconds = "" if job.allowed is None else f" of {job.allowed:g} s"
    return DeadlineExceeded(
        f"the deadline{seconds} passed with {job.written} tokens written; ask for less, or allow more time"
    )
