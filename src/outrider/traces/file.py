"""Writes a trace while an engine runs. A disk that fails ends the trace, never a request."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

from outrider.engine.completion import Completion
from outrider.engine.engine import Engine
from outrider.engine.observe import Observer, RequestTrace
from outrider.engine.trace import RoundTrace
from outrider.files import unwritable
from outrider.traces.lines import Line, Lines

_LOGGER = logging.getLogger("outrider.traces")


class TraceFile(Observer):
    """Appends the trace of `engine` to the file at `path`, a line at a time, so that it can be read while it grows.

    prompts: also write what was asked. on_failure: told once, in a line, when the file cannot be written any more.
    Raises OptionError if it cannot be opened. Attach it with `engine.attach`.
    """

    def __init__(
        self,
        path: str | Path,
        engine: Engine,
        *,
        prompts: bool = False,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._on_failure = on_failure or _LOGGER.warning
        self._lines = Lines(engine, prompts=prompts)
        self._released: dict[int, int] = {}  # characters of each running request's text that rounds delivered
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(self.path, "trace", error) from error
        if _in_mid_line(self.path):
            self._put(b"\n")  # an earlier writer was cut off
        self._write(self._lines.header())

    def began(self, request: RequestTrace) -> None:
        self._write(self._lines.request(request))

    def round_done(self, trace: RoundTrace) -> None:
        for row in trace.rows:
            self._released[row.request_id] = self._released.get(row.request_id, 0) + sum(map(len, row.texts))
        self._write(self._lines.round(trace))

    def ended(self, request_id: int, completion: Completion) -> None:
        self._write(self._lines.end(request_id, completion, self._released.pop(request_id, 0)))

    def close(self) -> None:
        """Write no more; closing twice is fine."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _write(self, line: Line) -> None:
        if not self._file.closed:
            self._put(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n")

    def _put(self, data: bytes) -> None:
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes were written")
        except OSError as error:
            self._on_failure(f"the trace ends here, {self.path} cannot be written: {error.strerror or error}")
            self._give_up()

    def _give_up(self) -> None:
        try:
            self._file.close()
        except OSError:  # a disk that fails may fail here too
            return


def write_trace(engine: Engine, path: str | Path, *, prompts: bool = False) -> TraceFile:
    """From now on the engine's rounds go to the file at `path`. Raises OptionError."""
    trace = TraceFile(path, engine, prompts=prompts)
    engine.attach(trace)
    return trace


def _in_mid_line(path: Path) -> bool:
    """Whether the file ends within a line; False for what cannot be read back, such as a pipe."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False
