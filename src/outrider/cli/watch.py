"""`outrider watch`: plays a trace, or a server's rounds as they happen, in the browser or in the terminal."""

import contextlib
import json
import sys
import urllib.error
import webbrowser
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.serve import KEY_VARIABLE, first_key
from outrider.cli.terminal import text_console
from outrider.errors import ModelError, OptionError, OutriderError
from outrider.traces.lines import Line
from outrider.traces.reader import RecordedRequest, Recording, read_trace
from outrider.traces.summary import pair

Source = Annotated[str, typer.Argument(help="A trace file, or the address of a server (http://...).")]
Against = Annotated[Path | None, typer.Option("--against", help="A second trace, to play beside the first.")]
Compare = Annotated[bool, typer.Option("--compare", help="Play a run with drafts beside a plain one of its prompt.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Play it here instead of in a browser.")]
Save = Annotated[Path | None, typer.Option("--save", help="Write the page to this file instead of showing it.")]
Port = Annotated[int, typer.Option("--port", help="Where the page is shown, on 127.0.0.1 only; 0 picks a free one.")]
Browser = Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the default browser.")]


def register(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    source: Source,
    *,
    against: Against = None,
    compare: Compare = False,
    terminal: Terminal = False,
    save: Save = None,
    port: Port = 0,
    browser: Browser = True,
) -> None:
    """Play a generation: what was drafted, kept, replaced.

    A server's API key is taken from $OUTRIDER_API_KEY.
    """
    live = source.startswith(("http://", "https://"))
    if live and (against or save or compare):
        name = "against" if against else "save" if save else "compare"
        raise OptionError(f"--{name} needs a trace file, and {source} is a server")
    if terminal and save:
        raise OptionError("--terminal plays it here and --save writes the page; choose one")
    if terminal:
        _in_terminal(source, against, compare, live)
    elif live:
        _show_live(source, port, browser)
    else:
        _show_traces(Path(source), against, compare, save, port, browser)


def _in_terminal(source: str, against: Path | None, side_by_side: bool, live: bool) -> None:
    from outrider.watch.terminal import compare, follow, play

    console = text_console()
    if live:
        follow(_lines_of(source), console)
        return
    recording = _read(Path(source))
    if recording.skipped:
        print(f"{recording.skipped} lines of {source} could not be read and were left out", file=sys.stderr)
    requests = recording.requests
    if against or side_by_side:
        compare(*_two(source, requests, _read(against).requests if against else requests), console)
    else:
        play(next((one for one in requests if one.speculative), requests[0]), console)


def _read(path: Path) -> Recording:
    recording = read_trace(path)
    if not recording.requests:
        raise OptionError(f"{str(path)!r} holds no round: nothing was written while it was recorded")
    return recording


def _two(
    source: str, requests: list[RecordedRequest], others: list[RecordedRequest]
) -> tuple[RecordedRequest, RecordedRequest]:
    """What is compared. Raises OptionError where there is only one."""
    found = pair(requests, others)
    if len(found) == 1 and others is requests:
        raise OptionError(f"{source} holds one run; `outrider generate --compare --trace FILE` writes two")
    return found[0], found[-1]


def _show_traces(
    path: Path, against: Path | None, side_by_side: bool, save: Path | None, port: int, browser: bool
) -> None:
    from outrider.watch.page import trace_page

    recordings = [_read(path), *([_read(against)] if against else [])]
    if side_by_side:
        _two(str(path), recordings[0].requests, recordings[-1].requests)
    unread = [["?"] * one.skipped for one in recordings]  # the page counts them
    texts = ["\n".join([*one.lines, *more]) for one, more in zip(recordings, unread, strict=True)]
    page = trace_page(texts, title=path.name, side_by_side=side_by_side or against is not None)
    if save is not None:
        save.write_text(page, "utf-8")
        print(f"{save} holds the page; any browser opens it", file=sys.stderr)
        return
    _serve(page, port, browser)


def _show_live(source: str, port: int, browser: bool) -> None:
    from outrider.watch.page import live_page

    page = live_page("rounds", links=False)
    _serve(page, port, browser, rounds=_rounds_of(source), api_key=first_key())


def _serve(page: str, port: int, browser: bool, *, rounds: str | None = None, api_key: str | None = None) -> None:
    from outrider.watch.serve import PageServer

    with PageServer(page, port=port, rounds=rounds, api_key=api_key) as server:
        print(f"watch it at {server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
        if browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _rounds_of(source: str) -> str:
    return source.rstrip("/") + "/rounds"


def _lines_of(source: str) -> Iterator[Line]:
    """The lines of a server's feed. Raises ModelError if there is no such server, or if it refuses."""
    from outrider.watch.serve import open_rounds

    key = first_key()
    try:
        with open_rounds(_rounds_of(source), f"Bearer {key}" if key else None) as stream:
            for raw in stream:
                if raw.startswith(b"data: "):
                    yield json.loads(raw.removeprefix(b"data: "))
    except urllib.error.HTTPError as error:
        raise _refusal(source, error.code) from error
    except urllib.error.URLError as error:
        raise ModelError(f"no answer from {source}: {error.reason}") from error
    except (HTTPException, OSError, ValueError) as error:
        raise ModelError(f"the rounds of {source} broke off or are none: {error!r}") from error


def _refusal(source: str, status: int) -> OutriderError:
    if status == 401:
        return OptionError(f"{source} asks for an API key; set ${KEY_VARIABLE}")
    return ModelError(f"{source} answers {status}; is it an Outrider server?")
