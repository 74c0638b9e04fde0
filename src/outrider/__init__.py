"""Outrider: exact speculative decoding. The same text as the target model alone, sooner.

What takes long to import (torch, transformers) is imported when it is first asked for.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider import errors as errors
    from outrider import testing as testing
    from outrider.api import load
    from outrider.drafters.registry import available_drafters
    from outrider.engine.completion import Completion, CompletionStats, TokenEvent
    from outrider.engine.engine import Engine, Handle
    from outrider.engine.request import Request
    from outrider.sampling.params import SamplingParams
    from outrider.targets.hf.generate import transformers_generate

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "CompletionStats",
    "Engine",
    "Handle",
    "Request",
    "SamplingParams",
    "TokenEvent",
    "available_drafters",
    "errors",
    "load",
    "transformers_generate",
]

_PLACES = {
    "Completion": "engine.completion",
    "CompletionStats": "engine.completion",
    "Engine": "engine.engine",
    "Handle": "engine.engine",
    "Request": "engine.request",
    "SamplingParams": "sampling.params",
    "TokenEvent": "engine.completion",
    "available_drafters": "drafters.registry",
    "load": "api",
    "transformers_generate": "targets.hf.generate",
}
_MODULES = ("errors", "testing")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _import_module(f"outrider.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    value = getattr(_import_module(f"outrider.{_PLACES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
