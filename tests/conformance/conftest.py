"""The long modules of the suite run without shape checks (see helpers_speed.py); the others keep them."""

from collections.abc import Iterator

import pytest

from helpers_speed import shapes_unchecked

LONG = ("test_equality", "test_float64", "test_law", "test_targets", "test_trees")


@pytest.fixture(autouse=True)
def _fast(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.module.__name__ not in LONG:
        yield
        return
    with shapes_unchecked():
        yield
