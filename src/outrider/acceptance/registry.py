"""Finds rules by name. A file `x.py` in this folder that defines a Rule named "x" is the rule "x"."""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

from outrider.acceptance.base import Rule
from outrider.errors import OptionError, did_you_mean


def available_rules() -> tuple[str, ...]:
    """Names of all rules, sorted."""
    return tuple(sorted(_classes()))


def make_rule(spec: str | Rule, **options: Any) -> Rule:
    """The rule named `spec` with these options (its dataclass fields); a ready rule is returned as it is.

    Options may also follow the name, as the command line writes them: "typical:epsilon=0.1,delta=0.3".
    Raises OptionError for a name, option or value that is not known.
    """
    if not isinstance(spec, str):
        if options:
            raise OptionError(f"options {sorted(options)} go with a rule's name, not with a ready rule {spec!r}")
        if not callable(spec) or not hasattr(spec, "lossless"):
            raise OptionError(f"rule must be a name or a Rule, not {spec!r}; known: {', '.join(available_rules())}")
        return spec
    name, _, text = spec.partition(":")
    if name not in _classes():
        raise OptionError(f"unknown rule {name!r}{did_you_mean(name, _classes())}")
    return _build(name, {**_parse(name, text), **options})


def rule_spec(rule: Rule) -> str:
    """The rule as `make_rule` reads it: its name, and its options if it has any."""
    options = [f"{field.name}={getattr(rule, field.name)}" for field in fields(rule)] if is_dataclass(rule) else []
    return f"{rule.name}:{','.join(options)}" if options else rule.name


def _build(name: str, options: Mapping[str, Any]) -> Rule:
    rule_class = _classes()[name]
    known = [field.name for field in fields(rule_class)]  # pyright: ignore[reportArgumentType]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "; it has no options"
            raise OptionError(f"rule {name!r} has no option {option!r}{hint}")
    return rule_class(**options)


def _parse(name: str, text: str) -> dict[str, float]:
    """`a=1,b=2` as numbers; every option of a rule is a number."""
    options: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        option, equals, value = item.partition("=")
        try:
            options[option.strip()] = float(value)
        except ValueError:
            what = f"{value!r} is not a number" if equals else "it has no value"
            raise OptionError(f"rule {name!r}, option {option!r}: {what}; write {name}:option=0.5") from None
    return options


@cache
def _classes() -> dict[str, Callable[..., Rule]]:
    import outrider.acceptance as package

    modules = [import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    return {rule.name: rule for module in modules for rule in _rules_in(module)}


def _rules_in(module: Any) -> list[Any]:
    """Rules defined in the module, not merely imported there. (issubclass refuses protocols that have attributes.)"""
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    return [value for value in own if Rule in value.__mro__[1:]]
