"""Which backend scores a model: torch through transformers, or llama.cpp for GGUF files. The engine does not know."""

import os
from collections.abc import Mapping
from typing import Any, Literal

import torch

from outrider.errors import OptionError, did_you_mean
from outrider.models import MODELS
from outrider.targets.base import Exactness, Target

Backend = Literal["auto", "torch", "llama.cpp"]
BACKENDS = ("auto", "torch", "llama.cpp")
VARIABLE = "OUTRIDER_BACKEND"  # what auto means: torch or llama.cpp


def load_target(
    name: str,
    *,
    backend: str = "auto",
    backend_options: Mapping[str, Any] | str | None = None,
    dtype: torch.dtype | str | None = None,
    device: str = "cpu",
    max_rows: int = 8,
    max_length: int | None = None,
    exact: Exactness | None = None,
    quantize: str | None = None,
    ignore_generation_config: bool = False,
) -> Target:
    """The model `name`, ready to score, by the backend that `choose_backend` says.

    backend_options: of llama.cpp, see `LlamaOptions`; everything else as in `hf.loader.load_target`.
    Raises ModelError, UnsupportedError, OptionError.
    """
    chosen, reason = choose_backend(name, backend, dtype=dtype, device=device, exact=exact, quantize=quantize)
    common: dict[str, Any] = {
        "max_rows": max_rows,
        "max_length": max_length,
        "exact": exact,
        "ignore_generation_config": ignore_generation_config,
    }
    if chosen == "llama.cpp":
        from outrider.targets.llamacpp.loader import load_llamacpp  # an optional extra

        return load_llamacpp(name, options=backend_options, **common)
    if backend_options:
        raise OptionError(f"backend_options are llama.cpp's, but torch runs {name} ({reason}); leave them out")
    from outrider.targets.hf.loader import load_target as load_torch  # slow import: transformers

    return load_torch(name, dtype=dtype, device=device, quantize=quantize, **common)


def choose_backend(
    name: str,
    backend: str,
    *,
    dtype: Any = None,
    device: str = "cpu",
    exact: str | None = None,
    quantize: str | None = None,
) -> tuple[Literal["torch", "llama.cpp"], str]:
    """The backend and why. auto: llama.cpp for what is a GGUF file if it is installed and nothing else needs torch.

    Raises OptionError for an unknown backend, and for what llama.cpp cannot do if it was asked for by name.
    """
    if backend not in BACKENDS:
        raise OptionError(f"unknown backend {backend!r}{did_you_mean(backend, BACKENDS)}")
    if backend == "torch":
        return "torch", "asked for"
    needs = _needs_torch(dtype, device, quantize, exact if backend == "auto" else None)
    if backend == "llama.cpp":
        if needs:
            raise OptionError(f"{needs}; backend='torch' does that")
        return "llama.cpp", "asked for"
    reason = _not_gguf(name) or needs or _not_wanted()
    return ("torch", reason) if reason else ("llama.cpp", "a GGUF file, and llama.cpp is installed")


def _needs_torch(dtype: Any, device: str, quantize: str | None, exact: str | None) -> str:
    if dtype not in (None, "auto"):
        return f"dtype is {dtype}, but under llama.cpp weights stay as the file has them"
    if quantize is not None:
        return f"quantize is {quantize!r}, but under llama.cpp weights stay as the file has them"
    if device != "cpu":
        return f"device is {device!r}, but llama.cpp takes the backend option gpu_layers"
    return "exact is 'bitwise', which llama.cpp rarely is" if exact == "bitwise" else ""


def _not_gguf(name: str) -> str:
    return "" if name in MODELS or name.endswith(".gguf") else "not a GGUF file"


def _not_wanted() -> str:
    from outrider.targets.llamacpp.library import missing

    preferred = os.environ.get(VARIABLE, "auto")
    if preferred not in BACKENDS:
        raise OptionError(f"{VARIABLE} is {preferred!r}{did_you_mean(preferred, BACKENDS)}")
    return f"{VARIABLE} says so" if preferred == "torch" else missing()
