"""OPT: sampling options ignored or mis-applied."""

from typing import Any

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import Oracle
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(seed=51)
CONSTANT = World(vocab_size=5, habit=0.0)


def constant(tokens: Any) -> torch.Tensor:
    return torch.tensor([1.0, 0.9, 0.5, 0.2, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("depth", [1, 3, 5])
@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty", "repetition_penalty"])
def test_opt_2_penalties_count_every_token_of_a_block(penalty: str, depth: int) -> None:
    """Constant logits, so nothing but the penalty moves the choice; the draft model is the target itself."""
    target = FunctionTarget(constant, 5)
    value = 1.3 if penalty == "repetition_penalty" else 1.0
    options = {penalty: value, "max_new_tokens": 24}
    found = run(Engine(target, ModelDrafter(FunctionTarget(constant, 5))), [[2]], max_depth=depth, **options)
    assert tokens_of(found) == [decode(constant, [2], **options)]
    assert found[0].stats.accepted == found[0].stats.proposed > 0
    if penalty == "frequency_penalty":
        assert sorted(found[0].token_ids.count(token) for token in range(5)) == [4, 5, 5, 5, 5]


def test_opt_2_minimum_length_counts_tokens_not_rounds() -> None:
    """The target wants the end from the third token on; with min_new_tokens=6 it comes as the seventh."""

    def logits(tokens: Any) -> torch.Tensor:
        row = torch.tensor([1.0, 0.9, 0.8, 0.0, 0.0], dtype=torch.float64)
        row[4] = 5.0 if len(tokens) >= 3 else 0.0
        return row

    for depth in (0, 1, 5):
        engine = Engine(FunctionTarget(logits, 5, [4]), ModelDrafter(FunctionTarget(logits, 5)))
        completion = run(engine, [[2]], min_new_tokens=6, max_depth=depth)[0]
        assert completion.token_ids == (0, 0, 0, 0, 0, 0, 4)
        assert completion.finish_reason == "stop"


class Diary:
    """A stateful processor: notes the text of every call."""

    def __init__(self) -> None:
        self.texts: list[list[int]] = []

    def __call__(self, tokens: list[int], logits: torch.Tensor) -> torch.Tensor:
        self.texts.append(tokens)
        return logits


@pytest.mark.parametrize("rule", ["identical", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_opt_3_processors_see_the_committed_text_and_nothing_twice(rule: str, temperature: float) -> None:
    diary, drafter = Diary(), Oracle(WORLD, wrong=lambda depth: depth == 2)
    options = {"logits_processors": [diary], "temperature": temperature, "seed": 3, "max_new_tokens": 20}
    completion = run(Engine(WORLD.target(), drafter, rule=rule), [[3, 1]], **options)[0]
    assert completion.stats.accepted < completion.stats.proposed
    assert diary.texts == [[3, 1, *completion.token_ids[:n]] for n in range(20)]


@pytest.mark.parametrize("rule", ["identical", "rejection", "block"])
@pytest.mark.parametrize(("option", "only"), [({"min_p": 0.5}, 0), ({"logit_bias": {2: 100.0}}, 2)])
def test_opt_4_every_position_is_shaped_not_only_the_bonus(rule: str, option: dict[str, Any], only: int) -> None:
    target = FunctionTarget(lambda tokens: torch.tensor([0.6, 0.25, 0.15]).log(), 3)
    for draft in ([1, 1, 1], [only, only, 1], [only] * 3):
        drafter = FunctionDrafter(lambda tokens, depth, draft=draft: draft)
        for seed in range(5):
            engine = Engine(target, drafter, rule=rule)
            completion = run(engine, [[1]], temperature=1.0, seed=seed, max_new_tokens=9, max_depth=3, **option)[0]
            assert completion.token_ids == (only,) * 9


def test_opt_6_each_request_has_its_own_settings() -> None:
    """One engine, one after another and side by side: temperature, truncation, seed, budget of each."""
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()))
    settings = [
        {"temperature": 0.0},
        {"temperature": 1.5, "top_p": 0.7, "seed": 1},
        {"temperature": 0.4, "top_k": 2, "seed": 2, "max_new_tokens": 5},
        {"temperature": 1.5, "top_p": 1.0, "seed": 1},
    ]
    expected = [decode(WORLD.target_logits, [4, 2], **{"max_new_tokens": 16} | options) for options in settings]
    one_by_one = [tokens_of(run(engine, [[4, 2]], **{"max_new_tokens": 16} | options))[0] for options in settings]
    handles = [engine.submit([4, 2], **{"max_new_tokens": 16} | options) for options in settings]
    while not all(handle.done for handle in handles):
        engine.step()
    assert expected == one_by_one == tokens_of([handle.completion for handle in handles])
    assert len(set(expected)) == len(settings)


# ---- real weights


@pytest.mark.real
def test_opt_1_real_penalties_change_the_text_in_both_modes(smollm2: Any) -> None:
    prompt = "Repeat the word 'hello' multiple times: hello"
    texts = []
    for penalty in (-2.0, 0.0, 2.0):
        options = {"frequency_penalty": penalty, "max_new_tokens": 8}
        plain, spec = run(smollm2(None), [prompt], **options)[0], run(smollm2("lookup"), [prompt], **options)[0]
        assert plain.token_ids == spec.token_ids
        texts.append(plain.token_ids)
    assert texts[0] != texts[2]
