"""LEN: length, budget, context limits."""

import pytest
import torch

from helpers import World, run, tokens_of
from helpers_drafters import Oracle
from helpers_models import VOCAB, llama, near_copy, target
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.errors import PromptError
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(seed=71)


@pytest.mark.parametrize("depth", range(7))
@pytest.mark.parametrize("budget", range(1, 9))
def test_len_1_the_budget_is_kept_at_every_depth(depth: int, budget: int) -> None:
    found = run(Engine(WORLD.target(), Oracle(WORLD)), [[2]], max_new_tokens=budget, max_depth=depth)
    assert tokens_of(found) == [decode(WORLD.target_logits, [2], max_new_tokens=budget)]
    assert len(found[0].token_ids) == budget


@pytest.mark.parametrize(("depth", "budget", "room"), [(256, 200, 76), (1000, 3, 4000), (40, 40, 1), (5, 5, 5)])
def test_len_2_drafts_are_cut_to_the_room_that_is_left(depth: int, budget: int, room: int) -> None:
    prompt = [1, 2, 3, 4]
    for drafter in (Oracle(WORLD), FunctionDrafter(lambda tokens, depth: [1] * 1000), ModelDrafter(WORLD.draft())):
        engine = Engine(WORLD.target(max_length=len(prompt) + room), drafter)
        found = run(engine, [prompt], max_new_tokens=budget, max_depth=depth)
        assert len(found[0].token_ids) == min(budget, room)
        limit = len(prompt) + room
        assert tokens_of(found) == [decode(WORLD.target_logits, prompt, max_new_tokens=budget, max_length=limit)]


@pytest.mark.parametrize("depth", [0, 4])
def test_len_3_prompts_at_the_limit(depth: int) -> None:
    """One below the limit: exactly one token. At it or above: a refusal that names both numbers."""
    limit = 16
    engine = Engine(target(llama(), max_length=limit), ModelDrafter(target(near_copy(llama()))))
    last = run(engine, [[1] * (limit - 1)], max_new_tokens=10, max_depth=depth)[0]
    assert (len(last.token_ids), last.finish_reason) == (1, "length")
    for size in (limit, limit + 1):
        with pytest.raises(PromptError, match=rf"{size} tokens.*{limit}"):
            engine.submit([1] * size)
    long = run(engine, [[1]], max_new_tokens=100, max_depth=depth)[0]
    assert len(long.token_ids) == limit - 1


def test_len_4_past_the_draft_models_limit() -> None:
    """Draft context 64, target 256, prompt 60: goes on without drafts, says so once, text as plain."""
    prompt = World(VOCAB, seed=2).prompts(1, 60)[0] * 60
    engine = Engine(target(llama(), max_length=256), ModelDrafter(target(llama(), max_length=64)))
    completion = run(engine, [prompt[:60]], max_new_tokens=40)[0]
    assert completion.token_ids == run(Engine(target(llama())), [prompt[:60]], max_new_tokens=40)[0].token_ids
    assert completion.stats.accepted > 0
    assert [("64" in warning) for warning in completion.stats.warnings] == [True]


def test_len_5_a_row_past_the_limit_costs_its_neighbour_nothing() -> None:
    draft = WORLD.target(max_length=20)
    long, short = [1, 2] * 12, [3]
    found = run(Engine(WORLD.target(), ModelDrafter(draft)), [long, short], max_new_tokens=15)
    assert found[0].stats.proposed == 0
    assert found[0].stats.rounds_without_proposal == found[0].stats.rounds == 15
    assert len(found[0].stats.warnings) == 1
    assert found[1].stats.accepted == found[1].stats.proposed > 0
    assert tokens_of(found) == [decode(WORLD.target_logits, p, max_new_tokens=15) for p in (long, short)]


def test_len_6_the_draft_model_evaluates_as_many_tokens_as_it_drafts() -> None:
    """Draft context 128, 400 tokens: no re-evaluation when the context is full, drafting simply stops."""
    draft = FunctionTarget(WORLD.draft_logits, 8, max_length=128)
    engine = Engine(WORLD.target(), ModelDrafter(draft))
    per_round: list[int] = []
    handle, before = engine.submit([1], max_new_tokens=400, max_depth=4), 0
    while not handle.done:
        engine.step()
        per_round.append(draft.num_scored - before)
        before = draft.num_scored
    assert max(per_round) <= 4 + 2
    assert per_round[-1] == 0
    assert len(handle.completion.token_ids) == 400
    assert torch.tensor(per_round[:20]).double().mean() > 3
