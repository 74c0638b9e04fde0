"""Runs the application until a signal, then lets it end well.

SIGTERM or SIGINT: /ready says 503, new requests get 503 with Retry-After, running answers go on for `drain` seconds;
what is not done then ends with an error event. A second signal ends them at once.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Generator

import uvicorn

from outrider.errors import OptionError
from outrider.server.app import Parts, make_app
from outrider.server.logs import log
from outrider.server.runner import EngineThread

GOODBYE_SECONDS = 5  # for the last bytes of ended streams to leave


class _Quiet(uvicorn.Server):
    """uvicorn without its own signal handlers: ours know about draining."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def serve(parts: Parts, on_listening: Callable[[str], None] | None = None) -> None:
    """Serve until a signal. on_listening(url) is called once connections are accepted. Raises OptionError."""
    listener = _listen(parts.config.host, parts.config.port)
    asyncio.run(_serve(parts, listener, on_listening))


async def _serve(parts: Parts, listener: socket.socket, on_listening: Callable[[str], None] | None) -> None:
    config = uvicorn.Config(
        make_app(parts),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GOODBYE_SECONDS,
    )
    server = _Quiet(config)
    parts.runner.start()
    signals = _Signals()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if on_listening is not None:
            on_listening(_url(listener))
        await asyncio.wait({serving, asyncio.create_task(signals.first.wait())}, return_when=asyncio.FIRST_COMPLETED)
        await _drain(parts, signals)
    finally:
        parts.runner.stop()
        parts.feed.close()
        await asyncio.sleep(0.05)  # the last updates reach their streams
        server.should_exit = True
        await serving


async def _drain(parts: Parts, signals: "_Signals") -> None:
    runner = parts.runner
    runner.drain()
    log("draining", fields={**_load(runner), "seconds": parts.config.drain})
    idle = asyncio.get_running_loop().run_in_executor(None, runner.wait_idle, parts.config.drain)
    await asyncio.wait({idle, asyncio.create_task(signals.second.wait())}, return_when=asyncio.FIRST_COMPLETED)
    log("stopping", fields=_load(runner))


def _load(runner: EngineThread) -> dict[str, int]:
    return {"running": runner.num_running, "waiting": runner.num_waiting}


class _Signals:
    """Events for the first and the second SIGTERM or SIGINT."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if sys.platform != "win32":
                loop.add_signal_handler(number, self._seen)

    def _seen(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OptionError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
