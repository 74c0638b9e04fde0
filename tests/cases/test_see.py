"""SEE: seeds and reproducibility."""

from typing import Any

import pytest

from helpers import World, run, tokens_of
from helpers_drafters import DrawnTree
from helpers_reference import decode
from outrider import Engine, Request, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter

WORLD = World(vocab_size=12, seed=111)
HOT = {"temperature": 2.0, "max_new_tokens": 10}


@pytest.mark.parametrize("rule", ["identical", "rejection", "block"])
@pytest.mark.parametrize("depth", range(1, 6))
def test_see_1_the_same_seed_is_the_same_text(rule: str, depth: int) -> None:
    """Alone, again, and beside others. Under `identical` it is also the plain text; under other rules the text
    depends on depth and drafter, and only its law does not."""
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()), rule=rule)
    alone = [run(engine, [[1, 2]], seed=42, max_depth=depth, **HOT)[0].token_ids for _ in range(3)]
    mine = Request([1, 2], SamplingParams(seed=42, max_depth=depth, **HOT))
    others = [Request([seed], SamplingParams(seed=seed, max_depth=3, **HOT)) for seed in range(6)]
    beside = run(engine, [*others[:3], mine, *others[3:]])[3].token_ids
    assert len({*alone, beside}) == 1
    if rule == "identical":
        assert beside == decode(WORLD.target_logits, [1, 2], seed=42, **HOT)[0]


def test_see_2_seeds_matter_when_sampling_and_only_then() -> None:
    engine = Engine(WORLD.target(), LookupDrafter())
    cold = {run(engine, [[1]], seed=seed, max_new_tokens=12)[0].token_ids for seed in range(10)}
    warm = {run(engine, [[1]], seed=seed, max_new_tokens=12, temperature=1.0)[0].token_ids for seed in range(10)}
    assert len(cold) == 1
    assert len(warm) == 10


def test_see_2_a_fresh_seed_is_shown_and_repeats_the_text() -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()))
    first, second = (run(engine, [[1]], **HOT)[0] for _ in range(2))
    assert first.effective_params["seed"] != second.effective_params["seed"]
    again = run(engine, [[1]], seed=first.effective_params["seed"], **HOT)[0]
    assert again.token_ids == first.token_ids


def test_see_3_a_greedy_request_among_random_neighbours() -> None:
    for rule in ("identical", "rejection"):
        engine = Engine(WORLD.target(max_rows=5), DrawnTree(WORLD), rule=rule)
        requests = [
            Request([3, 4], SamplingParams(max_new_tokens=15))
            if index % 2
            else Request([index], SamplingParams(seed=index, temperature=1.2, max_new_tokens=5 + index))
            for index in range(12)
        ]
        found = tokens_of(run(engine, requests))[1::2]
        assert found == [decode(WORLD.target_logits, [3, 4], max_new_tokens=15)] * 6


def test_see_4_calls_leave_no_state() -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()))
    options = {"temperature": 0.7, "seed": 3, "max_new_tokens": 20}

    def call(prompt: list[int]) -> Any:
        completion = run(engine, [prompt], **options)[0]
        return completion.token_ids, completion.stats.proposed, completion.stats.accepted

    a, b = [1, 2, 3], [9]
    assert call(a) == call(a) == call(a)
    first = call(b)
    assert call(a) == call(a)
    assert call(b) == first
