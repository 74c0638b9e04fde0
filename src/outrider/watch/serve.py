"""Serves one page to one person: on loopback only, under a path that nobody can guess, for as long as the command runs.

A page that follows a server gets its rounds through here, so that the browser speaks to one address only.
"""

import http.client
import secrets
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from outrider.errors import OptionError

LOOPBACK = "127.0.0.1"
PIECE = 1 << 14


class PageServer(ThreadingHTTPServer):
    """`server.url` shows `page`. rounds: the address of a server's rounds, which `rounds` beside the page relays."""

    daemon_threads = True

    def __init__(self, page: str, *, port: int = 0, rounds: str | None = None, api_key: str | None = None) -> None:
        self.page = page.encode()
        self.rounds = rounds
        self.api_key = api_key
        self.secret = secrets.token_urlsafe(16)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            raise OptionError(f"cannot show the page on port {port}: {error}; choose another --port") from error

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves in the middle is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        known = host in (LOOPBACK, "localhost")  # a name of elsewhere that leads here is somebody's trick
        place = self.path.removeprefix(f"/{self.server.secret}/") if known else self.path
        if known and place == "" and self.path:
            self._answer(200, "text/html; charset=utf-8", self.server.page)
        elif place == "rounds" and self.server.rounds is not None:
            self._relay(self.server.rounds)
        else:
            self._answer(404, "text/plain; charset=utf-8", b"not here")

    def _relay(self, address: str) -> None:
        key = self.headers.get("Authorization") or (f"Bearer {self.server.api_key}" if self.server.api_key else None)
        try:
            with open_rounds(address, key) as upstream:
                self._head(200, "text/event-stream")
                while piece := upstream.read1(PIECE):
                    self.wfile.write(piece)
                    self.wfile.flush()
        except urllib.error.HTTPError as error:
            self._answer(error.code, "application/json", error.read())
        except urllib.error.URLError as error:
            self._answer(502, "text/plain; charset=utf-8", f"no answer from {address}: {error.reason}".encode())

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self._head(status, kind, len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, size: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """The person at the browser sees what happens."""


def open_rounds(address: str, authorization: str | None) -> http.client.HTTPResponse:
    """A server's rounds as a stream of bytes. Raises URLError."""
    request = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
    if authorization:
        request.add_header("Authorization", authorization)
    return urllib.request.urlopen(request)
