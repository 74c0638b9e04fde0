"""Command-line options made from the fields of SamplingParams and the parameters of `load`.

Names, types, defaults and help come from there, so that each is written once. A command that takes them is written
with two keyword parameters `engine` and `sampling` and decorated; it then receives them as dictionaries.
"""

import dataclasses
import functools
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from outrider.api import load
from outrider.errors import OptionError
from outrider.models import DEFAULT_TARGET as DEFAULT_TARGET
from outrider.sampling.params import LogitsProcessor, SamplingParams
from outrider.targets.base import Exactness
from outrider.targets.loading import Backend

_METAVARS: dict[Any, str] = {int: "INT", float: "NUMBER", str: "TEXT"}
_LIST_METAVARS: dict[Any, str] = {
    Sequence[int]: "ID,...",
    Mapping[int, float]: "ID=VALUE,...",
    Sequence[str]: "TEXT",
    Sequence[LogitsProcessor]: "MODULE:FUNCTION",
}

Quantize = typing.Literal["int8"]
AnyQuantize: typing.TypeAlias = typing.Literal["int8"] | None
PolicyName = typing.Literal["auto", "fixed"]

DEFAULT_DRAFTER = "lookup"

_ENGINE: dict[str, tuple[Any, str]] = {
    "target": (str, "The model whose words are wanted: a name of `outrider models list`, hub id, folder, .gguf file."),
    "drafter": (str, "What drafts: a name or spec (lookup:max_ngram=4), or a smaller model. See `outrider drafters`."),
    "rule": (str, "The acceptance rule: identical, rejection, block, typical (lossy)."),
    "policy": (
        PolicyName | None,
        "`auto` drafts as deep as it pays, `fixed` always. [default: auto, if it cannot change the text]",
    ),
    "dtype": (str | None, "Of the weights, such as bfloat16 or float32. [default: the checkpoint's]"),
    "quantize": (AnyQuantize, "`int8` halves the weights' bytes on a CPU. [default: the weights as they are]"),
    "device": (str, "Where the target runs, such as cpu or cuda."),
    "max_length": (int | None, "Most tokens of prompt and output together. [default: the model's limit, at most 4096]"),
    "backend": (Backend, "What scores: torch, llama.cpp (GGUF files), or auto: llama.cpp for these if installed."),
    "backend_options": (str | None, "Of llama.cpp, such as threads=2,cache_type=q8_0."),
    "exact": (Exactness | None, "`bitwise` insists on bit-identical passes. [default: what a test at load confirms]"),
    "ignore_generation_config": (bool, "Leave out the settings of the model's generation_config.json."),
    "allow_plain": (bool, "Decode plainly, with a warning, where the drafter cannot be had or does not fit."),
}
_NUMBERS = ("max_length",)
_ENGINE_DEFAULTS = {
    **{name: parameter.default for name, parameter in inspect.signature(load).parameters.items()},
    "target": DEFAULT_TARGET,
    "drafter": DEFAULT_DRAFTER,
}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for everything that can be set; `engine` and `sampling` hold what was given."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name not in ("engine", "sampling")]
    added = [*engine_parameters(), *sampling_parameters()]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        engine = engine_values({p.name: values.pop(p.name) for p in engine_parameters()})
        sampling = sampling_values({p.name: values.pop(p.name) for p in sampling_parameters()})
        SamplingParams.from_options(**sampling)  # a value out of range is told before a model is loaded
        command(**values, engine=engine, sampling=sampling)

    wrapper.__signature__ = inspect.Signature([*own, *added])  # pyright: ignore[reportAttributeAccessIssue]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *added]}
    del wrapper.__wrapped__  # pyright: ignore[reportAttributeAccessIssue]
    return wrapper


@functools.cache
def engine_parameters() -> tuple[inspect.Parameter, ...]:
    """Options for what `load` takes."""
    return tuple(_parameter(name, kind, _ENGINE_DEFAULTS[name], text) for name, (kind, text) in _ENGINE.items())


@functools.cache
def sampling_parameters() -> tuple[inspect.Parameter, ...]:
    """Options for every field of SamplingParams."""
    fields = dataclasses.fields(SamplingParams)
    texts = help_from_docstring(SamplingParams, [field.name for field in fields])
    hints = typing.get_type_hints(SamplingParams)
    return tuple(_parameter(f.name, hints[f.name], f.default, texts[f.name]) for f in fields)


def engine_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, or stands by default, as arguments of `load`. Raises OptionError."""
    return {name: _number(value, int) if name in _NUMBERS else value for name, value in given.items()}


def sampling_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed as values of SamplingParams; what was not typed is left out. Raises OptionError."""
    hints = typing.get_type_hints(SamplingParams)
    return {name: _read(name, value, hints[name]) for name, value in given.items() if not _absent(value)}


def help_from_docstring(cls: type, names: Iterable[str]) -> dict[str, str]:
    """What the docstring says after `name: `, or after `name, other: `, for each of the names ("" if nothing)."""
    text = " ".join(inspect.cleandoc(cls.__doc__ or "").split())
    one = "|".join(sorted(names, key=len, reverse=True))
    heads = list(re.finditer(rf"(?:^|(?<=[.\]] ))((?:{one})(?:, (?:{one}))*): ", text))
    found = dict.fromkeys(names, "")
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        words = text[head.end() : after.start() if after else len(text)].strip()
        found |= dict.fromkeys(head.group(1).split(", "), words)
    return found


def _parameter(name: str, hint: Any, default: Any, text: str) -> inspect.Parameter:
    kind, metavar = _command_type(hint)
    option = typer.Option(f"--{name.replace('_', '-')}", help=text, metavar=metavar, show_default=not _absent(default))
    kind = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default or None, annotation=kind)


def _command_type(hint: Any) -> tuple[Any, str | None]:
    """The type that the command line reads, and what the help calls it.

    Numbers are read as text, so that the one who knows their range complains about them. Lists are typed once per
    item; ids also with commas.
    """
    kinds = _kinds(hint)
    if kinds == [bool]:
        return bool, None
    if len(kinds) == 1 and kinds[0] in _METAVARS:
        return str | None, _METAVARS[kinds[0]]
    if typing.get_origin(kinds[0]) is typing.Literal:
        return hint, None
    return list[str] | None, _LIST_METAVARS[kinds[-1]]


def _absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ()


def _kinds(hint: Any) -> list[Any]:
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return [kind for kind in (typing.get_args(hint) if union else (hint,)) if kind is not type(None)]


def _read(name: str, value: Any, hint: Any) -> Any:
    kind = _kinds(hint)[-1]
    if not isinstance(value, list):
        return _number(value, kind) if kind in (int, float) else value
    words: list[str] = value
    if typing.get_origin(kind) is Mapping:
        return dict(_pair(name, word) for word in _split(words))
    item = typing.get_args(kind)[0]
    if item is int:
        return [_whole(name, word) for word in _split(words)]
    return words if item is str else [_function(name, word) for word in words]


def _split(words: Sequence[str]) -> list[str]:
    return [part for word in words for part in word.split(",")]


def _number(text: str | None, kind: type[int] | type[float]) -> Any:
    """The number; text that is none stays text, which the one who knows the range refuses."""
    try:
        return text if text is None else kind(text)
    except ValueError:
        return text


def _whole(name: str, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise OptionError(f"{name} holds {word!r}, which is no token id; write ids such as 17 or 17,42") from None


def _pair(name: str, word: str) -> tuple[int, float]:
    token_id, _, added = word.partition("=")
    try:
        return int(token_id), float(added)
    except ValueError:
        raise OptionError(f"{name} cannot be {word!r}; write ID=VALUE, such as 17=-2.5") from None


def _function(name: str, word: str) -> Callable[..., Any]:
    module, _, attribute = word.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(f"{name} cannot be {word!r} ({error}); write an importable module:function") from None
