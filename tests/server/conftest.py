import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # worlds, live

from live import ToyServer
from worlds import parts


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """The toy's tensors are tiny: sharing them out costs far more than computing them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def toy() -> Iterator[ToyServer]:
    """One toy server for a module's tests; every test leaves it idle."""
    with ToyServer(parts(max_waiting=64, max_tokens=400)) as server:
        yield server
