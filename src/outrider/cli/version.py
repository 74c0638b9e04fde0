"""`outrider version`"""

import platform
from importlib.metadata import version as installed

import typer

import outrider


def register(app: typer.Typer) -> None:
    app.command()(version)


def version() -> None:
    """The versions that decide what is computed."""
    print(f"outrider {outrider.__version__}")
    print(f"python {platform.python_version()}, torch {installed('torch')}, transformers {installed('transformers')}")
