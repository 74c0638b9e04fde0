"""Tokens are told apart by origin: in colour, without colour, and without a terminal."""

import io

import pytest
from rich.console import Console

from outrider.cli.terminal import legend, show, styled
from outrider.engine.completion import TokenEvent
from outrider.looks import MEANINGS


def console(**options) -> Console:
    return Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=80, **options)


def printed(where: Console, text: str, origin, **options) -> str:
    show(TokenEvent(0, (1,), text, origin), where, **options)
    return where.file.getvalue()


def test_origins_differ_in_colour():
    looks = {printed(console(force_terminal=True, color_system="standard"), "word", o) for o in MEANINGS}
    assert len(looks) == 4
    assert all("word" in look for look in looks)


def test_origins_differ_without_colour(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    looks = [printed(console(force_terminal=True, color_system="standard"), "word", o) for o in MEANINGS]
    assert len(set(looks)) == 4
    assert not any(code in look for look in looks for code in ("\x1b[3", ";3"))  # underline and bold, no colours


def test_a_pipe_gets_the_text_alone_or_marks():
    assert printed(console(), " word", "bonus") == " word"
    assert printed(console(), " word\n", "bonus", marks=True) == " «word»\n"
    assert printed(console(), "[red]x[/red]", "accepted", marks=True) == "[red]x[/red]"
    assert styled("\n", "recovered", console()).plain == "\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_legend_fits_in_80_columns(terminal):
    line = legend(console(force_terminal=terminal))
    assert len(line.plain) <= 80
    assert all(origin in line.plain for origin in MEANINGS)
