"""`outrider chat`: a conversation in the terminal."""

import contextlib
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.api import load
from outrider.chat.conversation import Conversation
from outrider.chat.loop import Chat
from outrider.cli.figures import method, summary
from outrider.cli.generate import check_tracing
from outrider.cli.options import with_options
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import legend, notes_console, show, text_console
from outrider.engine.completion import Completion, TokenEvent
from outrider.errors import OptionError
from outrider.traces.file import write_trace

System = Annotated[str, typer.Option("--system", help="What the model is told first.")]
Origins = Annotated[bool, typer.Option("--origins", help="Tell kept, recovered and bonus tokens apart.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Append one JSON line a round, for `outrider watch`.")]
TracePrompt = Annotated[bool, typer.Option("--trace-prompt", help="The trace also has the prompts.")]


def register(app: typer.Typer) -> None:
    app.command()(with_options(chat))


def chat(
    *,
    system: System = "",
    origins: Origins = False,
    trace: Trace = None,
    trace_prompt: TracePrompt = False,
    engine: dict[str, Any],
    sampling: dict[str, Any],
) -> None:
    """Talk with the model. /help tells what can be said to the chat itself; Ctrl-D leaves.

    Every turn computes only what the earlier ones did not.
    """
    if "logprobs" in sampling:
        raise OptionError("a chat does not show logprobs; use `outrider generate --chat --json --logprobs`")
    check_tracing(trace, trace_prompt)
    notes, console = notes_console(), text_console()
    with notes.status("loading"), quiet_loading():
        ready = load(**engine, max_rows=2, reuse_prefixes=True)
    if trace is not None:
        write_trace(ready, trace, prompts=trace_prompt)
    _greet(ready.target.info.name, origins)
    with contextlib.suppress(ImportError):
        import_module("readline")  # lines can be edited and called back
    talk = Conversation(ready, sampling, system=system)
    Chat(talk, input, console, notes, figures=in_words, show=_marked if origins else None).run()


def in_words(completion: Completion, whole: bool) -> str:
    """An answer's figures: in one line, or with the method."""
    return f"{method(completion)}\n{summary(completion)}" if whole else summary(completion)


def _marked(event: TokenEvent, console: Console) -> None:
    show(event, console, marks=True)


def _greet(name: str, origins: bool) -> None:
    notes = notes_console()
    notes.print(f"{name}; /help for what else can be said, Ctrl-D leaves", style="dim", markup=False)
    if origins:
        notes.print(legend(text_console()))
