"""The checker that conftest.py puts on every function of outrider: shapes and dtypes of tensors, and nothing else.

What users hand in is checked by our own code, with messages that tests read; a second check before it would hide them.
"""

import typing
from collections.abc import Callable
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its jaxtyped parameters and result checked; a function without any stays as it is."""
    hints = dict(getattr(function, "__annotations__", {}))
    shaped = {name: hint for name, hint in hints.items() if _speaks_of_shapes(hint)}
    if not shaped or isinstance(function, type):
        return function
    function.__annotations__ = shaped
    try:
        return _check(function)
    finally:
        function.__annotations__ = hints


def _speaks_of_shapes(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(_speaks_of_shapes(part) for part in typing.get_args(hint))
