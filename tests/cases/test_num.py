"""NUM: near ties, batch shapes, precision: output differs without a logic defect."""

from typing import Any

import pytest
import torch

from helpers import World, run
from helpers_models import llama, near_copy, target
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.sampling.truncate import best
from outrider.testing import FunctionDrafter, FunctionTarget


def tied(tokens: list[int]) -> torch.Tensor:
    """The fifth token is an exact tie of 5 and 2777; the others are clear."""
    logits = torch.zeros(3000, dtype=torch.float64)
    if len(tokens) == 5:
        logits[5] = logits[2777] = -3.157238483428955 + 9
    else:
        logits[len(tokens) % 11] = 7.0
    return logits


@pytest.mark.parametrize("draft", [[], [5, 6, 7], [2777, 6, 7]])
def test_num_1_ties_are_broken_the_same_way_on_every_path(draft: list[int]) -> None:
    drafter = FunctionDrafter(lambda tokens, depth: draft)
    for shaped in ({}, {"logit_bias": {0: -1.0}}):  # the fast path, and the one through the settings
        completion = run(Engine(FunctionTarget(tied, 3000), drafter), [[1]], max_new_tokens=8, logprobs=2, **shaped)[0]
        assert completion.token_ids[4] == 5
        assert completion.logprobs is not None
        report = completion.logprobs[4]
        assert report.rank == 1
        assert [token for token, _ in report.top] == [5, 2777]
        assert report.top[0][1] == report.top[1][1] == report.logprob


def test_num_1_the_best_of_equals_is_the_lowest_id() -> None:
    values = torch.zeros(4000)
    values[[5, 2777, 3999]] = 1.5
    assert best(values, 2).tolist() == [5, 2777]
    assert int(values.argmax()) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_num_3_a_random_transformer_is_equal_in_every_method(dtype: torch.dtype) -> None:
    """In short; tests/conformance/test_float64.py has the 240 prompts."""
    prompts = World(23, seed=31).prompts(8)
    expected = run(Engine(target(llama(dtype=dtype))), prompts, max_new_tokens=48)
    for depth, drafter in [(3, LookupDrafter()), (5, ModelDrafter(target(near_copy(llama(dtype=dtype)))))]:
        found = run(Engine(target(llama(dtype=dtype)), drafter), prompts, max_new_tokens=48, max_depth=depth)
        assert [c.token_ids for c in found] == [c.token_ids for c in expected]


@pytest.mark.slow
def test_num_3_at_length() -> None:
    prompts = World(23, seed=32).prompts(200)
    expected = run(Engine(target(llama())), prompts, max_new_tokens=128)
    for depth in (1, 3, 8):
        for drafter in (LookupDrafter(), ModelDrafter(target(near_copy(llama())))):
            found = run(Engine(target(llama()), drafter), prompts, max_new_tokens=128, max_depth=depth)
            assert [c.token_ids for c in found] == [c.token_ids for c in expected]


@pytest.mark.real
@pytest.mark.slow
def test_num_4_first_tokens_are_equal_in_both_modes(smollm2: Any) -> None:
    """200 prompts, the first token only, which comes from a pass of one node or of five; some are near ties."""
    words = ("The", "A", "In", "We", "If", "On", "1", "x", "=", "(")
    prompts = [f"{word} {number}" for number in range(20) for word in words]
    plain = run(smollm2(None), prompts, max_new_tokens=1, logprobs=2)
    drafts = FunctionDrafter(lambda tokens, depth: [tokens[-1]] * depth)
    spec = run(Engine(smollm2(None).target, drafts), prompts, max_new_tokens=5, max_depth=4)
    assert [c.token_ids[0] for c in plain] == [c.token_ids[0] for c in spec]
    assert all(c.stats.max_proposed == 4 for c in spec)
    tops = [c.logprobs[0].top for c in plain if c.logprobs]
    gaps = sorted(first[1] - second[1] for first, second in tops)
    assert len(gaps) == 200
    assert gaps[5] < 0.05  # of logarithms: without such prompts the test would say little


@pytest.mark.real
@pytest.mark.slow
def test_num_5_drift_is_nil_with_and_without_penalty(smollm2: Any) -> None:
    """Plain against plain with one thread and two, in a batch and alone, is the noise floor: here it must be nil."""
    prompts = ["Once upon a time", "def add(a, b):", "The capital of France is", "1, 2, 3, 4, 1, 2, 3, 4, 1,"]
    threads = torch.get_num_threads()
    for penalty in (1.0, 1.05):
        options = {"temperature": 0.1, "top_p": 0.1, "seed": 42, "repetition_penalty": penalty, "max_new_tokens": 32}
        plain, spec = run(smollm2(None), prompts, **options), run(smollm2("lookup"), prompts, **options)
        try:
            torch.set_num_threads(3 - min(2, threads))
            others = [run(smollm2(None), [prompt], **options)[0] for prompt in prompts]
        finally:
            torch.set_num_threads(threads)
        drift = sum(one.token_ids != other.token_ids for one, other in zip(plain, others, strict=True))
        assert drift == 0
        assert [c.token_ids for c in spec] == [c.token_ids for c in plain]
        assert sum(c.stats.accepted for c in spec) > 0
