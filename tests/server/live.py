"""A server on a free loopback port: the toy's in this process, a real model's in its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import uvicorn
from openai import OpenAI

from outrider.server.app import make_app
from outrider.server.runner import EngineThread


class ToyServer:
    """`with ToyServer(parts()) as server:`; server.url, server.post(...), server.client (openai's)."""

    def __init__(self, parts: Any, send_buffer: int | None = None) -> None:
        self.parts = parts
        self._listener = socket.socket()
        if send_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._http = httpx.Client(verify=False, timeout=300, limits=httpx.Limits(max_connections=None))
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(make_app(parts), log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)

    @property
    def runner(self) -> EngineThread:
        return self.parts.runner

    @property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0, timeout=300)

    def __enter__(self) -> "ToyServer":
        self.runner.start()
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.close()
        self.runner.stop()
        self.parts.feed.close()
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        kind = {"content": body} if isinstance(body, (bytes, str)) else {"json": body}
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return self._http.post(self.url + path, headers=headers, **kind, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._http.get(self.url + path, **options)

    def idle(self) -> bool:
        """Nothing waits, nothing runs, and the engine agrees."""
        engine = self.runner.engine
        return not (self.runner.num_waiting or self.runner.num_running or engine.num_running or engine.num_waiting)


class CommandServer:
    """`outrider serve ...` as a person starts it."""

    def __init__(self, *arguments: str) -> None:
        source = Path(__file__).parents[2] / "src"
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "2"}
        command = [sys.executable, "-m", "outrider.cli", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait(self, seconds: float = 240) -> str:
        """The server's address, once it listens."""
        until(lambda: self.process.poll() is not None or self._address() is not None, seconds)
        address = self._address()
        assert address is not None, "".join(self.lines)
        return address

    def _address(self) -> str | None:
        found = re.search(r"listening on (\S+)", "".join(self.lines))
        return found.group(1) if found else None

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """The exit code after a SIGTERM."""
        with suppress(ProcessLookupError):
            self.signal()
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            self._reader.join(10)
            assert self.process.stderr is not None
            self.process.stderr.close()


def until(condition: Any, seconds: float = 30) -> None:
    """Wait for the condition; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not true within {seconds} s"
        time.sleep(0.01)
