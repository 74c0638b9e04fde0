"""What stands before every handler, as plain ASGI: request ids and the access log, limits, the API key.

Nothing here reads a body beyond counting its bytes, and nothing buffers an answer.
"""

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.server.errors import make_body
from outrider.server.logs import log

OPEN_PATHS = ("/health", "/ready")  # for probes, which have no key
KEYLESS_PATHS = (*OPEN_PATHS, "/")  # a page that knows nothing: what it shows it asks for with the key
_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")


class RequestLog:
    """Gives every request an id (the client's X-Request-Id, if sane), and writes one line when it is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _GOOD_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started, status = time.monotonic(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            log("unhandled", level=logging.ERROR, error=error, fields={"request_id": request_id})
            if status:
                raise  # the answer has begun: the server closes the connection
            await answer(send_with_id, 500, "internal error; the server's log has the cause", "internal_error")
        finally:
            self._write(scope, request_id, status, time.monotonic() - started)

    def _write(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        client = scope.get("client") or ("?", 0)
        about = {"method": scope["method"], "path": scope["path"], "status": status, "client": client[0]}
        log("request", fields={"request_id": request_id, **about, "seconds": round(seconds, 4)})


class Limits:
    """At most max_clients open requests; bodies of at most max_body_bytes that arrive within body_timeout seconds.

    The bodies of all open requests have at most max_pending_bytes together.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_clients: int,
        max_body_bytes: int,
        max_pending_bytes: int,
        body_timeout: float,
        on_refusal: Callable[[str], None],
    ) -> None:
        self._app = app
        self._max_clients = max_clients
        self._max_bytes = max_body_bytes
        self._max_pending = max_pending_bytes
        self._pending = 0
        self._timeout = body_timeout
        self._on_refusal = on_refusal
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        if self._open >= self._max_clients:
            self._on_refusal("clients")
            message = f"{self._open} requests are open and the limit is {self._max_clients}; try again later"
            await answer(send, 503, message, "too_many_clients", [(b"retry-after", b"1")])
            return
        self._open += 1
        try:
            await self._limited(scope, receive, send)
        finally:
            self._open -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()
        try:
            _check_type(scope)
            await self._read(scope, receive, body)
            await self._app(scope, _replay(bytes(body), receive), send)
        except _Refused as refusal:
            self._on_refusal(refusal.reason)
            headers = [(b"connection", b"close"), *([(b"retry-after", b"1")] if refusal.status == 503 else [])]
            await answer(send, refusal.status, str(refusal), refusal.code, headers)
        finally:
            self._pending -= len(body)

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Adds the whole body. Raises _Refused for one that is too large, too slow, or too much with all the others."""
        too_large = _Refused(413, f"the body is larger than this server's limit of {self._max_bytes} bytes")
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self._max_bytes:
            raise too_large
        if length.isdigit() and self._pending + int(length) > self._max_pending:
            raise self._too_much()
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(400, "the client left before its body was complete")
                    piece = message.get("body", b"")
                    body += piece
                    self._pending += len(piece)
                    if len(body) > self._max_bytes:
                        raise too_large
                    if self._pending > self._max_pending:
                        raise self._too_much()
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            raise _Refused(408, f"the body did not arrive within {self._timeout:g} s") from None

    def _too_much(self) -> "_Refused":
        message = f"open requests hold {self._pending} bytes and the limit is {self._max_pending}; try again later"
        return _Refused(503, message, "too_many_bytes", "bytes")


class ApiKey:
    """Asks for one of the keys as a bearer token, except of probes. Keys are compared in constant time."""

    def __init__(self, app: ASGIApp, *, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._digests or scope["path"] in KEYLESS_PATHS or self._known(scope):
            await self._app(scope, receive, send)
            return
        message = "the API key is missing or wrong; send it as a bearer token"
        await answer(send, 401, message, "invalid_api_key", [(b"www-authenticate", b"Bearer")])

    def _known(self, scope: Scope) -> bool:
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        digest = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them, every time
        return kind.lower() == "bearer" and any(matches)


async def answer(send: Send, status: int, message: str, code: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """A whole answer with OpenAI's error object."""
    body = json.dumps(make_body(message, status, code)).encode()
    fields = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


class _Refused(Exception):
    """code: OpenAI's word for it. reason: what the metrics call it."""

    def __init__(self, status: int, message: str, code: str = "invalid_request_error", reason: str = "body") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.reason = reason


def _check_type(scope: Scope) -> None:
    """Raises _Refused for a body that does not say that it is JSON."""
    headers = Headers(scope=scope)
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "")
    if has_body and kind.partition(";")[0].strip().lower() != "application/json":
        raise _Refused(415, f"the Content-Type is {kind!r}; send the body as application/json", reason="type")


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever the connection says (that the client left)."""
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed
