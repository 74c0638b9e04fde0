"""One generation on its way through the server, and what the engine's thread tells about it."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.engine import Handle
from outrider.engine.request import Request


@dataclass(frozen=True)
class Update:
    """News of a job: new events; at the end either a completion or an error.

    index: the job's place among the answers to one HTTP request.
    """

    index: int
    events: Sequence[TokenEvent] = ()
    completion: Completion | None = None
    error: Exception | None = None

    @property
    def last(self) -> bool:
        return self.completion is not None or self.error is not None


Sink = Callable[[Update], None]
"""Called in the engine's thread with every update, in order; it must return at once."""


@dataclass
class Times:
    """When things happened to a job (time.monotonic); None until they did."""

    queued: float = field(default_factory=time.monotonic)
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    ended: float | None = None

    def see(self, events: Sequence[TokenEvent], now: float) -> None:
        if any(event.token_ids for event in events):
            self.first_token = self.first_token or now
            self.last_token = now

    @property
    def queue_seconds(self) -> float:
        """From arrival to the step that gave it a row; until its end if it never had one."""
        until = self.started or self.ended or self.queued
        return until - self.queued


@dataclass(eq=False)
class Job:
    """request: what the engine gets, its prompt as token ids. client: whose turn it uses. deadline: monotonic time.

    allowed: the seconds that the deadline stands for, for messages.
    """

    request: Request
    sink: Sink
    index: int = 0
    client: Hashable = None
    request_id: str = ""
    deadline: float | None = None
    allowed: float | None = None
    handle: Handle | None = None
    times: Times = field(default_factory=Times)
    done: bool = False
    cancelled: bool = False

    def is_late(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    @property
    def written(self) -> int:
        return len(self.handle.row.written) if self.handle else 0
