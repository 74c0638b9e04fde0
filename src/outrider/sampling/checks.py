"""Checks of option values: each returns the value in its plain Python type, or raises OptionError with one clear line.

A bool is not a number, NaN is no value, numpy numbers are as good as Python's.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from outrider.errors import OptionError


def real(low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Callable[[str, Any], float]:
    """A finite number from low (above: excluded) to high."""
    wanted = f"a finite number{_span(low, high, above)}"

    def check(name: str, value: Any) -> float:
        if not _is_finite(value) or not low <= value <= high or (above and value == low):
            raise OptionError(f"{name} must be {wanted}, not {value!r}")
        return float(value)

    return check


def whole(low: int, high: int | None = None) -> Callable[[str, Any], int]:
    """An integer from low to high."""
    wanted = f"an integer{_span(low, math.inf if high is None else high, False)}"

    def check(name: str, value: Any) -> int:
        if not _is_whole(value) or value < low or (high is not None and value > high):
            raise OptionError(f"{name} must be {wanted}, not {value!r}")
        return int(value)

    return check


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be True or False, not {value!r}")
    return value


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """A list of token ids."""
    ids = _listed(name, value, "a list of token ids (integers from 0)")
    for token_id in ids:
        if not _is_whole(token_id) or token_id < 0:
            raise OptionError(f"{name} must be a list of token ids (integers from 0); it holds {token_id!r}")
    return tuple(int(token_id) for token_id in ids)


def bias(name: str, value: Any) -> dict[int, float]:
    """A mapping from token id to what is added to its logit."""
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} must be a mapping from token id to a finite number, not {value!r}")
    pairs: list[tuple[Any, Any]] = list(value.items())
    return {token_ids(f"{name}'s keys", [key])[0]: real()(f"{name}[{key!r}]", added) for key, added in pairs}


def strings(name: str, value: Any) -> tuple[str, ...]:
    """One non-empty string, or several."""
    items = (value,) if isinstance(value, str) else _listed(name, value, "a string or a list of strings")
    for item in items:
        if not isinstance(item, str) or not item:
            raise OptionError(f"{name} must be a non-empty string or a list of them; it holds {item!r}")
    return tuple(items)


def callables(name: str, value: Any) -> tuple[Callable[..., Any], ...]:
    """A list of functions."""
    items = _listed(name, value, "a list of functions (token_ids, logits) -> logits")
    for item in items:
        if not callable(item):
            raise OptionError(f"{name} must hold functions (token_ids, logits) -> logits; it holds {item!r}")
    return tuple(items)


def _listed(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise OptionError(f"{name} must be {wanted}, not {value!r}")
    try:
        items: list[Any] = list(value)
    except TypeError:  # a tensor without axes, say
        raise OptionError(f"{name} must be {wanted}, not {value!r}") from None
    return tuple(items)


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _span(low: float, high: float, above: bool) -> str:
    if math.isinf(low):
        return ""
    start = f" above {low:g}" if above else f" from {low:g}"
    return start + ("" if math.isinf(high) else f" to {high}" if isinstance(high, int) else f" to {high:g}")
