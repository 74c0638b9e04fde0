"""How text looks in a terminal: tokens told apart by origin, in colour or, without a terminal, by marks."""

import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from outrider.looks import MARKS, MEANINGS, STYLES

if TYPE_CHECKING:
    from outrider.engine.completion import Origin, TokenEvent


def text_console() -> Console:
    """For the text itself: stdout, wrapped by nobody but the terminal. NO_COLOR and TERM=dumb are respected."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def notes_console() -> Console:
    """For everything else, so that a pipe gets the text alone: stderr."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


def legend(console: Console) -> Text:
    """One line that explains the looks, in those looks."""
    line = Text()
    for origin, meaning in MEANINGS.items():
        line.append("  " if line else "")
        line.append_text(styled(origin, origin, console)).append(f" {meaning}", "dim")
    return line


def styled(text: str, origin: "Origin | None", console: Console, *, marks: bool = True) -> Text:
    """A piece of text in its origin's style; in its marks where there is no terminal to show one."""
    if origin is None:
        return Text(text)
    if console.is_terminal and not console.is_dumb_terminal:
        return Text(text, STYLES[origin])
    return Text(_marked(text, origin) if marks else text)


def show(event: "TokenEvent", console: Console, *, marks: bool = False) -> None:
    """Print a token event's text at once."""
    console.print(styled(event.text, event.origin, console, marks=marks), end="")
    console.file.flush()


def wrapped(line: str, indent: int) -> str:
    """A line of a list, folded between words where the terminal is narrower."""
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, max(width, indent + 20), subsequent_indent=" " * indent, drop_whitespace=True)


def _marked(text: str, origin: "Origin") -> str:
    """Marks around what can be seen: white space stays outside."""
    before, after = MARKS[origin]
    lead, core, trail = re.fullmatch(r"(\s*)(.*?)(\s*)", text, re.DOTALL).groups()  # pyright: ignore
    return f"{lead}{before}{core}{after}{trail}" if core else text
