"""Outrider: exact speculative decoding. The same text as the target model alone, sooner."""

from typing import TYPE_CHECKING

from outrider import errors
from outrider import testing as testing
from outrider.api import load
from outrider.drafters.registry import available_drafters
from outrider.engine.completion import Completion, CompletionStats, TokenEvent
from outrider.engine.engine import Engine, Handle
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams

if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
    if name == "transformers_generate":  # slow import: transformers
        from outrider.targets.hf.generate import transformers_generate

        return transformers_generate
    raise AttributeError(f"module 'outrider' has no attribute {name!r}")
