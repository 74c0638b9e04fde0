"""`outrider serve`: one model behind OpenAI's protocol. The server's options are the fields of ServerConfig."""

import dataclasses
import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.acceptance import make_rule
from outrider.cli.options import engine_parameters, engine_values, help_from_docstring
from outrider.cli.profiles import checked_profile
from outrider.cli.quiet import quiet_loading
from outrider.errors import OptionError, UnsupportedError
from outrider.server.config import ServerConfig

Drafters = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        help="What drafts: a name or spec (lookup:max_ngram=4), or a smaller model; `none` for plain decoding. "
        "May be given several times: requests can choose, the first is the default. [default: lookup]",
    ),
]
MaxRows = Annotated[int, typer.Option("--max-rows", help="Most requests that run at the same time.")]
ShowText = Annotated[
    bool, typer.Option("--show-text", help="Those who watch the rounds see all clients' texts, not only the figures.")
]
Trace = Annotated[
    str | None,
    typer.Option("--trace", help="Append one JSON line a round, all clients' texts included.", metavar="FILE"),
]
TracePrompts = Annotated[bool, typer.Option("--trace-prompts", help="The trace also has the prompts.")]
ProfileFile = Annotated[
    Path | None, typer.Option("--profile", help="Target, drafters and policy from `outrider plan`.")
]
KEY_VARIABLE = "OUTRIDER_API_KEY"


def first_key() -> str | None:
    """The key that a client of ours sends: the variable may name several, for several clients."""
    return next((key.strip() for key in os.environ.get(KEY_VARIABLE, "").split(",") if key.strip()), None)


def register(app: typer.Typer) -> None:
    app.command()(_with_options(serve))


def serve(
    context: typer.Context,
    *,
    drafter: Drafters = None,
    max_rows: MaxRows = 8,
    show_text: ShowText = False,
    trace: Trace = None,
    trace_prompts: TracePrompts = False,
    profile: ProfileFile = None,
    engine: dict[str, Any],
    server: dict[str, Any],
) -> None:
    """Serve a model to OpenAI's clients, many at once. Ends well on SIGTERM or Ctrl-C."""
    given: dict[str, Any] = {"api_key": os.environ.get(KEY_VARIABLE), **server}
    config = ServerConfig(**given)
    specs = [spec for spec in drafter or ["lookup"] if spec != "none"]
    if profile:
        chosen = checked_profile(context, profile, engine["target"])
        specs, engine = (
            list(chosen.drafters),
            {**engine, "target": chosen.target, "policy": chosen.make_policy(), **chosen.loading()},
        )
    rule = make_rule(engine.pop("rule"))
    if trace_prompts and trace is None:
        raise OptionError("--trace-prompts says what --trace FILE shall hold; give a file, or leave it out")
    try:
        from outrider.server import logs
        from outrider.server.build import load_parts
        from outrider.server.run import serve as run
    except ImportError as error:
        raise UnsupportedError(
            f"the server needs {error.name}: install Outrider with its extra, pip install '.[server]'"
        ) from error
    with quiet_loading():
        watching: dict[str, Any] = {"show_text": show_text, "trace": trace, "trace_prompts": trace_prompts}
        parts = load_parts(specs, rule, config, max_rows=max_rows, **watching, **engine)
    logs.set_up()
    run(parts, lambda url: print(f"listening on {url} with {parts.model_name}", file=sys.stderr, flush=True))


# ---- options out of ServerConfig


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    own = [p for p in inspect.signature(command).parameters.values() if p.name not in ("engine", "server")]
    of_engine = [p for p in engine_parameters() if p.name not in ("drafter", "allow_plain")]
    of_server = _server_parameters()

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        engine = engine_values({p.name: values.pop(p.name) for p in of_engine})
        server = {p.name: values.pop(p.name) for p in of_server}
        given = {name: _read(name, value) for name, value in server.items() if value not in (None, False)}
        command(**values, engine=engine, server=given)

    parameters = [*own, *of_engine, *of_server]
    wrapper.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapper.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]
    return wrapper


def _server_parameters() -> list[inspect.Parameter]:
    fields = dataclasses.fields(ServerConfig)
    texts = help_from_docstring(ServerConfig, [field.name for field in fields])
    return [_parameter(field, texts[field.name]) for field in fields]


def _parameter(field: "dataclasses.Field[Any]", text: str) -> inspect.Parameter:
    kind = bool if field.type is bool else str | None
    metavar = None if kind is bool else {int: "INT", float: "SECONDS"}.get(typing.cast(Any, field.type), "TEXT")
    default = False if kind is bool else None
    shown = "" if field.default in (None, False) else f" [default: {field.default}]"
    option = typer.Option(
        f"--{field.name.replace('_', '-')}", help=f"{text}{shown}", metavar=metavar, show_default=False
    )
    annotation = Annotated[kind, option]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read(name: str, value: Any) -> Any:
    """What was typed, as the field's type. Raises OptionError."""
    kind = next(field.type for field in dataclasses.fields(ServerConfig) if field.name == name)
    if kind not in (int, float):
        return value
    try:
        return typing.cast(Any, kind)(value)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise OptionError(f"{name} is {value!r}; it must be {wanted}") from None
