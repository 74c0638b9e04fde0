"""Real models for the cases that need them, loaded once; and no shape checks, which other tests make."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import outrider
from helpers_speed import quick
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.targets.base import Target


@pytest.fixture(scope="session")
def smollm2(models: Callable[[str], Path]) -> Callable[[str | None], Engine]:
    """smollm2("lookup") is an engine over SmolLM2-135M with that drafter; "self": the model drafts for itself."""

    @cache
    def target(which: str) -> Target:
        models("smollm2-135m")
        return outrider.load("smollm2-135m", max_rows=4).target

    def engine(drafter: str | None) -> Engine:
        chosen = ModelDrafter(target("draft")) if drafter == "self" else drafter
        return outrider.load(target("target"), chosen)

    return engine


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("real"):
        yield
        return
    with quick():
        yield
