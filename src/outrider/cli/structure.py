"""Command-line options for text that must obey a grammar."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.engine.engine import Engine
from outrider.engine.request import Prompt
from outrider.errors import OptionError

JsonSchema = Annotated[
    str | None, typer.Option("--json-schema", help="The text is JSON of this schema: a file, or the schema itself.")
]
Regex = Annotated[str | None, typer.Option("--regex", help="The text matches this regular expression as a whole.")]
Choice = Annotated[list[str] | None, typer.Option("--choice", help="The text is this one, or another --choice.")]
Lark = Annotated[Path | None, typer.Option("--grammar", help="The text obeys the Lark grammar in this file.")]


def read_structure(
    json_schema: str | None, regex: str | None, choice: list[str] | None, grammar: Path | None
) -> dict[str, Any]:
    """What was asked for, as options of `Structure`; empty if nothing was. Raises OptionError."""
    from outrider.structured import Structure

    lark = None if grammar is None else _read(grammar)
    schema = None if json_schema is None else _schema(json_schema)
    given: dict[str, Any] = {"json_schema": schema, "regex": regex, "choice": choice or None, "lark": lark}
    asked = {name: value for name, value in given.items() if value is not None}
    if asked:
        Structure(**asked)
    return asked


def constrain(engine: Engine, prompt: Prompt, structure: dict[str, Any], sampling: dict[str, Any]) -> dict[str, Any]:
    """The sampling options with a fresh processor for this structure, if one was asked for."""
    if not structure:
        return sampling
    from outrider.structured import Structured

    processor = Structured(engine.target).processor(prompt, **structure)
    return {**sampling, "logits_processors": [*sampling.get("logits_processors", ()), processor]}


def _schema(given: str) -> Any:
    text = given if given.lstrip().startswith(("{", "[")) else _read(Path(given))
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise OptionError(f"--json-schema is neither JSON nor a file of JSON: {error}") from None
    if not isinstance(schema, dict):
        raise OptionError(f"--json-schema is {schema!r}; it must be an object, such as {{}} for any JSON")
    return schema  # pyright: ignore[reportUnknownVariableType]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from None
