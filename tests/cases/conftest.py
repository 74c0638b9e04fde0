"""Real models for the cases that need them, loaded once; and no checks of shapes, which other tests make."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

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


@pytest.fixture(scope="session")
def short_twin(models: Callable[[str], Path]) -> Target:
    """SmolLM2 again, with room for 40 tokens, and a head 64 rows wider than its tokenizer that loves the last of them.

    The extra rows mean nothing; whatever reads them writes or drafts an id that does not exist.
    """
    from outrider.targets.hf.loader import read_model
    from outrider.targets.hf.target import HFTarget

    models("smollm2-135m")
    model, tokenizer = read_model("smollm2-135m")
    rows = model.get_input_embeddings().weight.shape[0]
    with torch.no_grad():
        model.resize_token_embeddings(rows + 64, mean_resizing=False)
        model.get_output_embeddings().weight[rows:] = 0.0
        model.get_output_embeddings().weight[-1] = 30 * model.get_output_embeddings().weight[:rows].mean(0)
    return HFTarget(model, tokenizer, name="smollm2-short", max_rows=4, max_length=40)


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield
