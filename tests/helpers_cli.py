"""Runs the command line in this process and collects what a user would see."""

import contextlib
import io
from dataclasses import dataclass

from outrider.cli.main import run

PROMPT = " ".join(["w1 w2 w3 w4 w5"] * 6)  # repeats itself, so that lookup has something to find


@dataclass(frozen=True)
class Seen:
    """Exit code, stdout and stderr of one command line."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on stderr of a command that failed."""
        assert self.code != 0
        (line,) = self.err.splitlines()
        assert line.startswith("outrider: "), self.err
        return line.removeprefix("outrider: ")


def outrider(*words: str) -> Seen:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    return Seen(code, out.getvalue(), err.getvalue())
