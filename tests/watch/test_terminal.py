"""`outrider watch` in the terminal, through a pipe and through a pseudo-terminal, and what it refuses."""

import io
import json
import os
import pty
import re
import select
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tapes import PROMPT

from helpers_cli import outrider
from outrider.traces.reader import RecordedRequest, parse_trace, read_trace
from outrider.traces.summary import pair, verdict
from outrider.watch.paint import frames_of, tree_lines, written
from outrider.watch.terminal import follow, play


@pytest.fixture(scope="module")
def request_(path: Path) -> RecordedRequest:
    return read_trace(path).requests[0]


def test_every_round_is_printed_and_the_text_is_whole(path: Path, request_: RecordedRequest) -> None:
    seen = outrider("watch", str(path), "--terminal")
    assert (seen.code, seen.err) == (0, "")
    assert seen.out.count("round ") >= len(request_.rounds)
    assert (PROMPT + request_.text).replace("\n", "") in seen.out.replace("\n", "")
    assert "accepted" in seen.out.splitlines()[-1]
    for sign in ("✓", "✕"):
        assert sign in seen.out


def test_frames_have_three_steps_where_something_was_drafted(request_: RecordedRequest) -> None:
    frames = frames_of(request_)
    drafted = [place for place, one in enumerate(request_.rounds) if one.num_drafted]
    assert [place for place, step in frames if step == "draft"] == drafted
    assert [place for place, step in frames if step == "keep"] == list(range(len(request_.rounds)))
    assert frames[-1] == (len(request_.rounds), "end")
    assert written(request_, *frames[-1]).plain == PROMPT + request_.text
    texts = [written(request_, place, step).plain for place, step in frames if step == "keep"]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


def test_a_tree_shows_every_node_once_and_what_became_of_it(request_: RecordedRequest) -> None:
    one = next(one for one in request_.rounds if one.row["tree"]["parents"].count(0) == 2)
    shown = "\n".join(line.plain for line in tree_lines(one, "keep"))
    assert shown.count("✓") + shown.count("✕") == one.num_drafted
    assert shown.count("✓") == len(one.row["path"]) - 1
    assert "%" not in "\n".join(line.plain for line in tree_lines(one, "draft"))  # the target has not spoken yet


def test_a_node_that_is_its_own_parent_does_not_hang_the_player(request_: RecordedRequest) -> None:
    one = request_.rounds[0]
    row = {**one.row, "tree": {**one.row["tree"], "parents": [0] * len(one.row["tree"]["parents"])}}
    assert tree_lines(replace(one, row=row), "draft")


def test_two_traces_are_compared_and_a_ratio_needs_equal_tokens(path: Path, tmp_path: Path) -> None:
    seen = outrider("watch", str(path), "--terminal", "--against", str(path))
    assert re.search(r"the same tokens; the first run was [\d.]+ times", seen.out)
    assert "the same tokens" in outrider("watch", str(path), "--terminal", "--compare").out
    alone = tmp_path / "alone.jsonl"
    alone.write_text("\n".join(path.read_text("utf-8").split("\n")[:4]), "utf-8")
    assert "holds one run" in outrider("watch", str(alone), "--terminal", "--compare").error
    one, other = pair(read_trace(path).requests, read_trace(path).requests)
    other.rounds[3].row["delivered"]["tokens"][0] += 1
    differs = verdict(one, other)
    assert (differs.first_difference, differs.ratio) == (3, None)
    assert "DIFFER from number 4 on" in differs.words
    assert other.begin
    other.begin["digest"] = "another"
    assert "two different prompts" in verdict(one, other).words


def test_a_feed_without_texts_can_be_followed(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    for line in lines:
        for row in line.get("rows", ()):
            row["tree"] |= {"tokens": None, "texts": None}
            row["delivered"] |= {"tokens": None, "texts": None}
            row["next"] |= {"token": None, "text": None}
    out = io.StringIO()
    follow([*lines, {"kind": "load", "running": 0, "waiting": 0}], Console(file=out, width=100))
    assert "▮" in out.getvalue()
    assert "ended: length" in out.getvalue()
    hidden = parse_trace([json.dumps(line) for line in lines]).requests[0]
    out = io.StringIO()
    play(hidden, Console(file=out, width=100))
    assert "a token of its own" in out.getvalue()


def test_keys_step_through_it(path: Path) -> None:
    pid, fd = pty.fork()
    if pid == 0:
        try:
            _child(path)
        finally:
            os._exit(0)
    screen = _until(fd, "", "round 1 of")
    for key, wanted in ((b" ", ""), (b"\x1b[F", "the end"), (b"\x1b[H", "round 1 of"), (b"\x1b[1;2C", "round 2 of")):
        os.write(fd, key)
        screen = _until(fd, screen if not wanted else "", wanted)
    os.write(fd, b"q")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(fd)


def _child(path: Path) -> None:
    import termios

    termios.tcsetwinsize(0, (30, 100))
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # not pytest's
    os.environ["TERM"] = "xterm"
    play(read_trace(path).requests[0], Console(file=sys.stdout, force_terminal=True))


def _until(fd: int, seen: str, wanted: str) -> str:
    end = time.monotonic() + 60
    while wanted not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen):
        assert time.monotonic() < end, f"{wanted!r} never came: {seen!r}"
        if select.select([fd], [], [], 0.2)[0]:
            seen += os.read(fd, 65536).decode(errors="replace")
    return seen


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/nowhere.jsonl"], "cannot read the trace '/nowhere.jsonl'"),
        (["README.md"], "is no trace"),
        (["http://127.0.0.1:1", "--terminal"], "no answer from http://127.0.0.1:1"),
        (["http://127.0.0.1:1", "--against", "x"], "--against needs a trace file"),
        (["x", "--terminal", "--save", "y"], "choose one"),
    ],
)
def test_what_cannot_be_watched_gets_one_line(words: list[str], message: str) -> None:
    assert message in outrider("watch", *words).error


def test_a_trace_without_rounds_is_told(path: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text(path.read_text("utf-8").split("\n")[0] + "\n", "utf-8")
    assert "holds no round" in outrider("watch", str(empty), "--terminal").error


def test_the_page_can_be_saved(path: Path, tmp_path: Path) -> None:
    seen: Any = outrider("watch", str(path), "--save", str(tmp_path / "page.html"))
    assert seen.code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)  # nothing from elsewhere
