"""Loaded before any test: shapes and types are checked at run time, and threads are kept modest.

The suite depends on nothing that an earlier run left behind: models are fetched when first asked for, into the
user's cache folder, and verified by checksum.
"""

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["OUTRIDER_BACKEND"] = "torch"  # the suite says by name where it wants llama.cpp, installed or not

from jaxtyping import install_import_hook

with install_import_hook("outrider", "typecheck.checked"):  # before anything of outrider is imported
    import outrider

import pytest
import torch

assert outrider.__version__
torch.set_num_threads(1)  # most models here are tiny: sharing out their passes only loses


@pytest.fixture(scope="session")
def models() -> Callable[[str], Path]:
    """models("smollm2-135m") is the path of that model's file, fetched if the cache does not hold it."""
    from outrider.models import pull

    return lambda name: Path(pull(name))
