"""`outrider explain`"""

import sys
from typing import Annotated

import typer

from outrider.cli.terminal import text_console


def register(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    pause: Annotated[bool, typer.Option(help="Wait for Enter after each step (in a terminal).")] = True,
) -> None:
    """Play one round of speculative decoding step by step.

    There is nothing to download.
    """
    from outrider.explain import run_explain

    run_explain(text_console(), pause=pause and sys.stdin.isatty() and sys.stdout.isatty())
