"""Finds drafters by name: every file of this folder, and entry points of other packages in group `outrider.drafters`.

A spec names a drafter and its options in one string, for command lines and requests:

    lookup                      lookup:max_ngram=4,min_ngram=2               model:qwen-0.5b,dtype=bfloat16

The part before the colon is the name; a first part without `=` is the first option.
"""

import dataclasses
import importlib
import pkgutil
import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import outrider.drafters as package
from outrider.drafters.base import Drafter
from outrider.errors import OptionError, did_you_mean

ENTRY_POINTS = "outrider.drafters"
_NOT_DRAFTERS = {"base", "registry", "fit", "pairing", "growth", "automaton", "trust", "calibration", "guide"} | {
    "followers",
    "draft_cache", "expansion", "retelling", "spelling", "spots", "text_bridge", "vocabulary",
}  # fmt: skip


@cache
def _classes() -> Mapping[str, type[Drafter]]:
    found: dict[str, type[Drafter]] = {}
    for module_info in pkgutil.iter_modules(package.__path__):
        if module_info.name not in _NOT_DRAFTERS and not module_info.name.startswith("_"):
            module = importlib.import_module(f"{package.__name__}.{module_info.name}")
            found |= {c.name: c for c in vars(module).values() if _is_drafter(c) and c.__module__ == module.__name__}
    for point in entry_points(group=ENTRY_POINTS):
        found[point.name] = point.load()
    return dict(sorted(found.items()))


def _is_drafter(value: object) -> typing.TypeGuard[type[Drafter]]:
    return isinstance(value, type) and issubclass(value, Drafter) and "name" in vars(value)


def available_drafters() -> tuple[str, ...]:
    """Names that `load`, the command line and requests accept."""
    return tuple(_classes())


def drafter_class(name: str) -> type[Drafter]:
    """The class of that name; OptionError with the nearest known name if there is none."""
    if name not in _classes():
        raise OptionError(f"unknown drafter {name!r}{did_you_mean(name, _classes())}")
    return _classes()[name]


def options_of(name: str) -> dict[str, dataclasses.Field[Any]]:
    """The options of a drafter: its dataclass fields."""
    return {f.name: f for f in dataclasses.fields(drafter_class(name)) if f.init}  # pyright: ignore[reportArgumentType]


def make_drafter(spec: str, **options: Any) -> Drafter:
    """A drafter from a spec string; keyword options win over those in the string."""
    name, _, rest = spec.partition(":")
    cls = drafter_class(name)
    known = options_of(name)
    given = {**_parse(name, rest, known), **options}
    for option in given:
        if option not in known:
            raise OptionError(f"drafter {name!r} has no option {option!r}{did_you_mean(option, known)}")
    missing = [
        option
        for option, f in known.items()
        if option not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise OptionError(f"drafter {name!r} needs {missing[0]!r}: write {name}:{missing[0]}=...")
    return cls(**given)


def _parse(name: str, rest: str, known: Mapping[str, dataclasses.Field[Any]]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for index, part in enumerate(filter(None, rest.split(","))):
        option, equals, text = part.partition("=")
        bare = not equals or not option.isidentifier()  # such as `suffix:min_survival=0.2+recycle`, a spec of its own
        if bare and index == 0 and known:
            option, text = next(iter(known)), part
        elif not equals:
            raise OptionError(f"cannot read {part!r} in drafter {name}:{rest}; write option=value")
        if option not in known:
            raise OptionError(f"drafter {name!r} has no option {option!r}{did_you_mean(option, known)}")
        options[option] = _value(name, option, text, _hint(name, option))
    return options


def _hint(name: str, option: str) -> Any:
    return typing.get_type_hints(drafter_class(name))[option]


def _value(name: str, option: str, text: str, hint: Any) -> Any:
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = typing.get_args(hint) if union else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    for kind in (bool, int, float, str):
        if kind in kinds:
            try:
                return _BOOLS[text.lower()] if kind is bool else kind(text)
            except (ValueError, KeyError):
                continue
    if any(typing.get_origin(kind) is typing.Literal and text in typing.get_args(kind) for kind in (hint, *kinds)):
        return text
    raise OptionError(f"option {option!r} of drafter {name!r} cannot be {text!r}; it takes {_describe(hint)}")


_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _describe(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")
