"""The entry point `outrider`: finds the commands, runs one, and turns errors into one line and an exit code.

Exit codes: 0 done · 1 it could not be done, or what was checked is not so · 2 the command line asks for something
that does not exist · 130 interrupted. A traceback means a bug of ours.
"""

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import NoReturn

import typer

import outrider.cli as package
from outrider.cli.outline import commands
from outrider.errors import OptionError, OutriderError, PromptError

USAGE, FAILED, INTERRUPTED = 2, 1, 130
HELP = ("-h", "--help")


def make_app(asked: str | None = None) -> typer.Typer:
    """The app with the command `asked`, or with all: one file of this folder each, which registers it."""
    app = _empty_app()
    for name in [asked] if asked else _files():
        module = import_module(f"{package.__name__}.{name}")
        if hasattr(module, "register"):
            module.register(app)
    return app


def help_app() -> typer.Typer:
    """The app for `--help` alone: commands that can be listed and not run, made without importing them."""
    app = _empty_app()
    for name, told in commands().items():
        if told.is_group:
            app.add_typer(typer.Typer(help=told.about), name=name)
        else:
            app.command(name, help=told.about)(lambda: None)
    return app


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        help="Exact speculative decoding: the same text as the target model alone, sooner.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(HELP), "max_content_width": 100},
    )
    app.callback()(lambda: None)  # so that a single command still is called by its name
    return app


def _files() -> list[str]:
    return sorted(info.name for info in iter_modules(package.__path__) if info.name not in ("main", "__main__"))


def _asked(words: Sequence[str]) -> str | None:
    """The command, where a file has its name: the others, and what they import, are left alone."""
    return words[0] if words[0] in _files() else None


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own); returns the exit code."""
    words = list(sys.argv[1:] if args is None else args) or ["--help"]
    if words == ["--version"]:
        words = ["version"]
    try:
        app = help_app() if words[0] in HELP else make_app(_asked(words))
        result = app(args=words, standalone_mode=False, prog_name="outrider")
        sys.stdout.flush()  # a pipe that nobody reads any more shows here, not when the interpreter ends
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        return _report(error)
    return result if isinstance(result, int) else 0


def main() -> NoReturn:
    """Run the process's command line and exit. What a terminal's encoding lacks is shown as `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run())


def _report(error: Exception) -> int:
    """One line on stderr for what the user can mend; everything else is raised again."""
    if not isinstance(error, (OutriderError, OSError)) and not hasattr(error, "format_message"):
        raise error
    usage = isinstance(error, (OptionError, PromptError)) or hasattr(error, "format_message")
    if message := _message(error):
        print(f"outrider: {message}", file=sys.stderr)
    return USAGE if usage else FAILED


def _message(error: Exception) -> str:
    near = getattr(error, "possibilities", None)
    if near:
        return f"no option {getattr(error, 'option_name', '')}; did you mean {near[0]}?"
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot open {error.filename}: {error.strerror}"
    text = error.format_message() if hasattr(error, "format_message") else str(error)  # pyright: ignore
    if not text and (context := getattr(error, "ctx", None)):
        text = f"try '{context.command_path} --help'"
    return " ".join(text.split()).replace("Value error, ", "")
