"""One HTTP request on its way through the engine: a ticket, and its answer whole or in pieces."""

import time
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from outrider.engine.completion import Completion
from outrider.engine.request import Request as Generation
from outrider.server.config import ServerConfig
from outrider.server.logs import log
from outrider.server.render import Shape
from outrider.server.runner import EngineThread
from outrider.server.schema import ChatRequest, CompletionRequest
from outrider.server.sse import EventStream
from outrider.server.ticket import ClientGone, Ticket
from outrider.server.usage import metrics_of, usage_of

CLIENT_GONE = 499  # never read by anybody; marks the line in the log


class Answering:
    """Answers one checked body in one endpoint's shape."""

    def __init__(
        self,
        runner: EngineThread,
        config: ServerConfig,
        request: Request,
        body: ChatRequest | CompletionRequest,
        shape: Shape,
    ) -> None:
        self._runner = runner
        self._config = config
        self._request = request
        self._body = body
        self._shape = shape
        self._id: str = request.state.request_id
        self._started = time.monotonic()

    async def answer(self, requests: Sequence[Generation]) -> Response:
        """The response, whole or streamed. Raises what makes the request fail before it has begun."""
        seconds = min(self._body.deadline or self._config.deadline, self._config.deadline)
        ticket = Ticket(
            self._runner,
            requests,
            client=self._client(),
            request_id=self._id,
            allowed=seconds,
        )
        ticket.submit()
        return self._stream(ticket) if self._body.stream else await self._whole(ticket)

    def _client(self) -> tuple[str, str]:
        """Whose turn in the queue this request uses: an address and a key."""
        host = self._request.client.host if self._request.client else "?"
        return host, self._request.headers.get("authorization", "")

    async def _whole(self, ticket: Ticket) -> Response:
        try:
            completions = await ticket.completions(self._request.receive)
        except ClientGone:
            self._log(ticket, "left")
            return Response(status_code=CLIENT_GONE)
        except Exception as error:
            self._log(ticket, "error", error)
            raise
        self._log(ticket, "done")
        choices = [self._shape.whole(index, one) for index, one in enumerate(completions)]
        figures = self._figures(ticket, completions)
        return JSONResponse({**self._shape.head(stream=False), "choices": choices, **figures})

    def _stream(self, ticket: Ticket) -> Response:
        options = self._body.stream_options
        wanted = options is not None and options.include_usage
        return EventStream(
            ticket,
            self._shape,
            (lambda completions: self._figures(ticket, completions)) if wanted else None,
            send_timeout=self._config.send_timeout,
            on_end=lambda end: self._log(ticket, end),
            headers={},
        )

    def _figures(self, ticket: Ticket, completions: list[Completion]) -> dict[str, Any]:
        return {
            "usage": usage_of(completions, self._body.n),
            "metrics": metrics_of(ticket.jobs, completions),
        }

    def _log(self, ticket: Ticket, end: str, error: Exception | None = None) -> None:
        fields: dict[str, Any] = {
            "request_id": self._id,
            "end": end,
            "stream": self._body.stream,
            "answers": len(ticket.jobs),
            "prompt_tokens": sum(len(job.request.prompt) for job in ticket.jobs),
            "written_tokens": sum(job.written for job in ticket.jobs),
            "queue_seconds": round(max(job.times.queue_seconds for job in ticket.jobs), 4),
            "seconds": round(time.monotonic() - self._started, 4),
        }
        if self._body.user:
            fields["user"] = self._body.user
        if error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"
        if self._config.log_prompts:
            fields["body"] = self._body.model_dump(mode="json", exclude_unset=True, by_alias=True)
            fields["texts"] = [job.handle.row.text if job.handle else "" for job in ticket.jobs]
        log("generation", fields=fields)
