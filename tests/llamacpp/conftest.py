"""llama.cpp's targets over real files, loaded once; skipped, with the reason, where llama.cpp is not installed."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from outrider.targets.llamacpp.library import missing
from outrider.targets.llamacpp.target import LlamaTarget
from outrider.targets.loading import load_target


@pytest.fixture(scope="session")
def llamacpp(models: Callable[[str], Path]) -> Callable[..., LlamaTarget]:
    """llamacpp("smollm2-135m") is that model under llama.cpp with four rows; options as of load_target."""
    if reason := missing():
        assert "OUTRIDER_TEST_LLAMACPP" not in os.environ, f"llama.cpp was to be tested, but {reason}"
        pytest.skip(f"{reason} (`make llamacpp` builds it)")

    @cache
    def loaded(name: str, max_rows: int = 4, max_length: int = 1024, options: str = "threads=1") -> LlamaTarget:
        models(name)
        target = load_target(
            name, backend="llama.cpp", backend_options=options, max_rows=max_rows, max_length=max_length
        )
        assert isinstance(target, LlamaTarget)
        return target

    return loaded
