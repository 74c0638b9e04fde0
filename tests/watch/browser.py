"""A headless Chromium, spoken to over a pipe in its own protocol: open, look, press keys, take pictures."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT = 90  # seconds for one answer; the machine may be busy
KEYS = {" ": ("Space", 32), "ArrowLeft": ("ArrowLeft", 37), "ArrowRight": ("ArrowRight", 39), "Home": ("Home", 36)}
KEYS |= {"End": ("End", 35), "Tab": ("Tab", 9), "Enter": ("Enter", 13)}


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on the path (Debian's package is called chromium)")
    return found


class Browser:
    """`with Browser() as browser: browser.open(url); browser.eval("1 + 1")`"""

    def __init__(self) -> None:
        self._program = chromium()
        self._count = 0
        self._session: str | None = None
        self._buffer = b""
        self.errors: list[str] = []  # what the page's scripts threw, and what its policy refused

    def __enter__(self) -> "Browser":
        self._folder = tempfile.mkdtemp()
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        pair = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
        command = [self._program, *options, f"--user-data-dir={self._folder}", "--remote-debugging-pipe", "about:blank"]
        shell = ["bash", "-c", f'exec "$0" "$@" 3<&{pair[0]} 4>&{pair[1]}', *command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self._process = subprocess.Popen(shell, pass_fds=pair, start_new_session=True, **quiet)
        for fd in (theirs_in, theirs_out, *pair):
            os.close(fd)
        pages = self.send("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None):
        os.killpg(self._process.pid, signal.SIGKILL)  # its own session: the browser and its helpers
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, method: str, **params: Any) -> Any:
        """The browser's answer. AssertionError if it refuses, or does not answer in time."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def look(self, width: int = 1360, height: int = 900, dark: bool = False) -> None:
        """The size of the window, and the reader's taste."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        taste = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=taste)

    def open(self, url: str) -> None:
        self.eval("window.before = true")
        self.send("Page.navigate", url=url)
        self.until("window.before === undefined && document.readyState === 'complete'")

    def eval(self, script: str) -> Any:
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for a script to be true."""
        end = time.monotonic() + WAIT
        while not self.eval(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return self.eval(f"document.querySelector({json.dumps(selector)}).textContent")

    def press(self, key: str, *, shift: bool = False) -> None:
        code, number = KEYS[key]
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 8 if shift else 0}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is seen; whole: of all that can be scrolled to."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _read(self) -> Any:
        end = time.monotonic() + WAIT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser has ended"
            self._buffer += piece
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])
        return message
