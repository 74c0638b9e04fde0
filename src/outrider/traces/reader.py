"""Reads a trace back: the file's sessions (one per header), and in each the requests with their rounds.

A line that is cut off, no JSON or foreign (a writer that was killed, a full disk) is skipped and counted.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.errors import OptionError
from outrider.traces.lines import FORMAT, VERSION, Line
from outrider.traces.shape import check_line


@dataclass(frozen=True)
class RecordedRound:
    """One request's part of one round. at: seconds since the session's start; seconds: by phase, of the whole round."""

    index: int
    at: float
    seconds: dict[str, float]
    row: Line

    @property
    def delivered(self) -> int:
        return self.row["delivered"]["count"]

    @property
    def num_drafted(self) -> int:
        return len(self.row["tree"]["parents"]) - 1


@dataclass
class RecordedRequest:
    """One request. begin and end are its lines; None if the trace holds none."""

    id: int
    begin: Line | None = None
    rounds: list[RecordedRound] = field(default_factory=list[RecordedRound])
    end: Line | None = None

    @property
    def token_ids(self) -> list[int]:
        return [token for one in self.rounds for token in one.row["delivered"]["tokens"] or ()]

    @property
    def text(self) -> str:
        pieces = [text for one in self.rounds for text in one.row["delivered"]["texts"] or ()]
        return "".join(pieces) + ((self.end or {}).get("rest") or "")

    @property
    def speculative(self) -> bool:
        return any(one.num_drafted for one in self.rounds)


@dataclass
class Session:
    """What one engine did from the moment at which its trace was opened."""

    header: Line
    requests: dict[int, RecordedRequest] = field(default_factory=dict[int, RecordedRequest])

    def add(self, line: Line) -> None:
        """Take one line in, which check_line has passed."""
        if line["kind"] == "round":
            for row in line["rows"]:
                seconds = {str(name): float(value) for name, value in line["seconds"].items()}
                self._request(row["request"]).rounds.append(RecordedRound(line["round"], line["at"], seconds, row))
        elif line["kind"] == "request":
            self._request(line["request"]).begin = line
        elif line["kind"] == "end":
            self._request(line["request"]).end = line

    def _request(self, number: int) -> RecordedRequest:
        return self.requests.setdefault(number, RecordedRequest(number))


@dataclass
class Recording:
    """A whole trace. lines: those that could be read; skipped: how many could not."""

    sessions: list[Session] = field(default_factory=list[Session])
    skipped: int = 0
    lines: list[str] = field(default_factory=list[str])

    @property
    def requests(self) -> list[RecordedRequest]:
        """Of all sessions, those that wrote something."""
        return [one for session in self.sessions for one in session.requests.values() if one.rounds]


def read_trace(path: str | Path) -> Recording:
    """The trace at `path`. Raises OptionError if there is none, or if it is of another format."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"cannot read the trace {str(path)!r}: {error.strerror}") from error
    recording = parse_trace(data.split(b"\n"))
    if not recording.sessions:
        raise OptionError(f"{str(path)!r} is no trace; `outrider generate --trace FILE` writes one")
    return recording


def parse_trace(lines: Iterable[bytes | str]) -> Recording:
    """The trace that these lines are. Raises OptionError for one of another version."""
    recording = Recording()
    for raw in lines:
        if raw.strip():
            _take(recording, raw)
    return recording


def _take(recording: Recording, raw: bytes | str) -> None:
    try:
        line: Any = json.loads(raw)
        begins = line["kind"] == "header" and line["format"] == FORMAT
        session = _session(line) if begins else None
        check_line(line)
        if session is not None:
            recording.sessions.append(session)
        else:
            recording.sessions[-1].add(line)
        recording.lines.append(json.dumps(line))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        recording.skipped += 1


def _session(header: Line) -> Session:
    if header["version"] != VERSION:
        raise OptionError(f"this trace is of version {header['version']!r} and this Outrider reads {VERSION}")
    return Session(header)
