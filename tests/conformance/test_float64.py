"""A float64 transformer leaves no excuse of rounding: every text equals plain decoding, by every drafter and depth.

Plain decoding is stock transformers, the whole text through the model for every token. In the normal run 240 prompts
are dealt out over all combinations of drafter, depth and batch; `slow` runs all combinations over all of them.
"""

from functools import cache

import pytest
import torch
from found import drafters

from helpers import run
from helpers_models import VOCAB, llama, near_copy, sliding, target
from outrider import Engine
from outrider.drafters.registry import make_drafter
from outrider.targets.hf.target import HFTarget

NUM_PROMPTS = 240
LENGTH = 10
DEPTHS = range(1, 9)
BATCHES = range(1, 6)
MODELS = {"llama": llama, "sliding": sliding}


@cache
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randint(VOCAB, (NUM_PROMPTS, 9), generator=generator).tolist()
    return [row[: 1 + index % 9] for index, row in enumerate(numbers)]


@cache
def plain(kind: str) -> list[tuple[int, ...]]:
    """Greedy continuations by the stock model: prompts of one length share a pass, nothing is cached."""
    model, texts = MODELS[kind](), [list(prompt) for prompt in prompts()]
    for size in {len(text) for text in texts}:
        rows = [index for index, prompt in enumerate(prompts()) if len(prompt) == size]
        for _ in range(LENGTH):
            with torch.no_grad():
                logits = model(torch.tensor([texts[row] for row in rows]), use_cache=False).logits[:, -1]
            for row, token in zip(rows, logits.argmax(-1).tolist(), strict=True):
                texts[row].append(token)
    return [tuple(text[len(prompt) :]) for text, prompt in zip(texts, prompts(), strict=True)]


@cache
def engine(kind: str, name: str) -> Engine:
    model = MODELS[kind]()
    options = {"model": target(near_copy(model), max_rows=5)} if name == "model" else {}
    return Engine(shared_target(kind), make_drafter(name, **options))


@cache
def shared_target(kind: str) -> HFTarget:
    return target(MODELS[kind](), max_rows=5)


def check(kind: str, name: str, depth: int, rows: list[int]) -> int:
    """Number of accepted tokens, after the comparison."""
    found = run(engine(kind, name), [prompts()[row] for row in rows], max_new_tokens=LENGTH, max_depth=depth)
    assert [c.token_ids for c in found] == [plain(kind)[row] for row in rows]
    return sum(c.stats.accepted for c in found)


@pytest.mark.parametrize("name", drafters())
@pytest.mark.parametrize("kind", MODELS)
def test_all_prompts_over_every_depth_and_batch(kind: str, name: str) -> None:
    """48 prompts of 240 for each drafter, so that the five of them see all; every (depth, batch) is met."""
    start = 48 * drafters().index(name)
    places = iter([(start + i) % NUM_PROMPTS for i in range(8 * 15)])
    accepted = 0
    for depth in DEPTHS:
        for batch in BATCHES:
            accepted += check(kind, name, depth, [next(places) for _ in range(batch)])
    assert accepted > 0 or name == "none"


def test_every_prompt_is_met() -> None:
    met = {(48 * index + i) % NUM_PROMPTS for index in range(len(drafters())) for i in range(8 * 15)}
    assert len(met) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("name", drafters())
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("batch", BATCHES)
def test_the_full_product(kind: str, name: str, depth: int, batch: int) -> None:
    for start in range(0, NUM_PROMPTS, batch):
        check(kind, name, depth, list(range(start, min(start + batch, NUM_PROMPTS))))


@pytest.mark.parametrize("name", drafters())
def test_sampled_texts_equal_plain_ones(name: str) -> None:
    options = {"max_new_tokens": 30, "temperature": 0.8, "top_p": 0.9, "seed": 5, "frequency_penalty": 0.3}
    expected = run(Engine(shared_target("llama")), prompts()[:5], **options)
    found = run(engine("llama", name), prompts()[:5], **options)
    assert [c.token_ids for c in found] == [c.token_ids for c in expected]
