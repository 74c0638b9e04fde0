"""`outrider drafters`"""

import dataclasses
import inspect
from typing import Any

import typer

from outrider.cli.terminal import wrapped
from outrider.drafters.base import Drafter
from outrider.drafters.registry import available_drafters, drafter_class, options_of


def register(app: typer.Typer) -> None:
    app.command()(drafters)


def drafters() -> None:
    """List the drafters and their options.

    As --drafter takes them: NAME or NAME:option=value,option=value.
    """
    for name in available_drafters():
        print(wrapped(f"{name:10}{_about(drafter_class(name))}", indent=10))
        for option, field in options_of(name).items():
            print(wrapped(f"{'':10}{option}{_default(field)}", indent=14))


def _about(cls: type[Drafter]) -> str:
    """The first line of its file's docstring, which says what it does."""
    module = inspect.getmodule(cls)
    return inspect.cleandoc((module and module.__doc__) or "").partition("\n")[0]


def _default(field: dataclasses.Field[Any]) -> str:
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    return " (required)" if required else f" = {field.default}"
