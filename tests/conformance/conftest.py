"""The suite runs quickly (see helpers_speed.py), but for the hostile drafters, which meet every check."""

from collections.abc import Iterator

import pytest

from helpers_speed import quick


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.module.__name__ == "test_nonsense":
        yield
        return
    with quick():
        yield
