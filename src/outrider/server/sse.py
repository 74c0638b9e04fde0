"""A stream of server-sent events that always ends clearly: with [DONE], or with an error event and then [DONE].

The headers go out at once; while nothing happens a comment keeps proxies from closing the connection. A client that
leaves, or that blocks the stream too long, has its jobs cancelled within a round.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outrider.engine.completion import Completion
from outrider.server.errors import error_body
from outrider.server.job import Update
from outrider.server.render import Shape
from outrider.server.ticket import Ticket, disconnected

QUIET_SECONDS = 15.0  # without news before a comment is sent
DONE = b"data: [DONE]\n\n"
STILL_HERE = b": waiting\n\n"


class EventStream(Response):
    """The stream of a ticket's updates. last_chunk(completions): the chunk after the choices, if asked for.

    on_end(what): called once: "done", "error", "left" (the client) or "blocked" (its reader).
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        ticket: Ticket,
        shape: Shape,
        last_chunk: Callable[[list[Completion]], dict[str, Any]] | None,
        *,
        send_timeout: float,
        on_end: Callable[[str], None],
        headers: dict[str, str],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})
        del self.headers["content-length"]
        self._ticket = ticket
        self._shape = shape
        self._last_chunk = last_chunk
        self._send_timeout = send_timeout
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.create_task(self._write(send))
        leaving = asyncio.create_task(disconnected(receive))
        end = "left"
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                end = writing.result()
        except (TimeoutError, OSError) as error:
            end = "blocked" if isinstance(error, TimeoutError) else "left"
        finally:
            for task in (writing, leaving):
                task.cancel()
            self._ticket.cancel()
            self._on_end(end)

    async def _write(self, send: Send) -> str:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        end = "done"
        async for piece in self._pieces():
            end = "error" if piece.startswith(b'data: {"error"') else end
            body = {"type": "http.response.body", "body": piece, "more_body": True}
            await asyncio.wait_for(send(body), self._send_timeout)
        await asyncio.wait_for(send({"type": "http.response.body", "body": DONE}), self._send_timeout)
        return end

    async def _pieces(self) -> AsyncIterator[bytes]:
        openings = [self._shape.opening(job.index) for job in self._ticket.jobs]
        for opening in openings:
            if opening is not None:
                yield self._chunk([opening])
        found: dict[int, Completion] = {}
        async for update in self._ticket.updates(QUIET_SECONDS):
            if update is None:
                yield STILL_HERE
                continue
            if (piece := self._piece(update)) is not None:
                yield piece
            if update.error is not None:
                yield encode(error_body(update.error))
                return
            if update.completion is not None:
                found[update.index] = update.completion
        if self._last_chunk is not None:
            answers = [found[index] for index in sorted(found)]
            yield encode({**self._shape.head(stream=True), "choices": [], **self._last_chunk(answers)})

    def _piece(self, update: Update) -> bytes | None:
        choice = self._shape.piece(update.index, update.events)
        return None if choice is None else self._chunk([choice])

    def _chunk(self, choices: list[dict[str, Any]]) -> bytes:
        extra = {"usage": None} if self._last_chunk is not None else {}
        return encode({**self._shape.head(stream=True), "choices": choices, **extra})


def encode(value: Any) -> bytes:
    """One event. JSON has no newline of its own, so one `data:` line holds it."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(", ", ": ")).encode() + b"\n\n"
