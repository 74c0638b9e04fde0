"""GRE: greedy output differs from plain greedy through a real defect."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from helpers import World, run, tokens_of
from helpers_drafters import Oracle
from helpers_models import llama, near_copy, save_model, sliding, target
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.model import ModelDrafter
from outrider.testing import FunctionDrafter

WORLD = World(seed=21)


def stock_greedy(model: Any, prompt: list[int], count: int) -> tuple[int, ...]:
    """Plain greedy decoding by transformers' own model, the whole text again for every token."""
    text = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            text.append(int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return tuple(text[len(prompt) :])


@cache
def plain_llama(prompt: tuple[int, ...]) -> tuple[int, ...]:
    return stock_greedy(llama(), list(prompt), 64)


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("prompt", [(10,), (10, 3), (10, 3, 3)])
def test_gre_1_short_prompts_equal_plain(prompt: tuple[int, ...], depth: int) -> None:
    drafter = ModelDrafter(target(near_copy(llama(), noise=0.2)))
    completion = run(Engine(target(llama()), drafter), [list(prompt)], max_new_tokens=64, max_depth=depth)[0]
    assert completion.token_ids == plain_llama(prompt)
    assert 0 < completion.stats.accepted < completion.stats.proposed


@pytest.mark.parametrize("depth", [2, 4])
def test_gre_2_past_the_sliding_window(depth: int) -> None:
    """Window 8; the text goes far beyond it, and the draft is wrong often, so that roll-backs happen all along."""
    drafter = ModelDrafter(target(near_copy(sliding(), noise=0.3)))
    completion = run(Engine(target(sliding()), drafter), [[5, 1, 8]], max_new_tokens=45, max_depth=depth)[0]
    assert completion.token_ids == stock_greedy(sliding(), [5, 1, 8], 45)
    assert completion.stats.accepted < completion.stats.proposed - 10


def test_gre_4_both_modes_use_the_same_defaults(tmp_path: Path) -> None:
    """A model whose generation_config.json samples with a repetition penalty: both runs do, and both say so."""
    folder = save_model(tmp_path, llama(dtype=torch.float32), do_sample=True, top_k=20, repetition_penalty=1.05)
    plain = run(outrider.load(folder), [[4, 4, 4, 4]], seed=3, max_new_tokens=30)[0]
    spec = run(outrider.load(folder, "lookup"), [[4, 4, 4, 4]], seed=3, max_new_tokens=30)[0]
    assert plain.effective_params == spec.effective_params
    assert (plain.effective_params["repetition_penalty"], plain.effective_params["top_k"]) == (1.05, 20)
    assert plain.effective_params["temperature"] == 1.0
    assert plain.token_ids == spec.token_ids
    off = {"repetition_penalty": 1.0, "top_k": 0, "temperature": 0.0}
    assert run(outrider.load(folder), [[4, 4, 4, 4]], max_new_tokens=30, **off)[0].token_ids != plain.token_ids


@pytest.mark.parametrize("budget", range(1, 21))
def test_gre_5_same_length_and_reason_for_every_budget(budget: int) -> None:
    for eos in ((), (decode(WORLD.target_logits, [3], max_new_tokens=20)[0][11],)):
        engine = Engine(WORLD.target(eos), ModelDrafter(WORLD.draft()))
        found = tokens_of(run(engine, [[3]], max_new_tokens=budget))
        assert found == [decode(WORLD.target_logits, [3], eos, max_new_tokens=budget)]


@pytest.mark.parametrize("depth", [1, 5])
def test_gre_8_a_target_that_drafts_for_itself_is_always_right(depth: int) -> None:
    drafter = ModelDrafter(target(llama()))
    stats = run(Engine(target(llama()), drafter), [[7, 2]], max_new_tokens=64, max_depth=depth, top_k=1)[0].stats
    assert stats.accepted == stats.proposed == 64 - stats.rounds


def test_gre_8_an_oracle_needs_the_fewest_rounds() -> None:
    stats = run(Engine(WORLD.target(), Oracle(WORLD)), [[1]], max_new_tokens=60, max_depth=4)[0].stats
    assert (stats.rounds, stats.accepted, stats.proposed) == (12, 48, 48)


# ---- real weights


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("depth", [2, 4])
def test_gre_2_kvr_2_real_gemma_past_its_window(depth: int, models: Any) -> None:
    """Gemma-3-270m sees 512 positions in most layers; the run crosses position 512, every draft half wrong."""
    models("gemma3-270m")
    prompt, options = ("The tide came in and the boats went out. " * 50)[:1980], {"max_new_tokens": 48}
    engine = outrider.load("gemma3-270m", max_rows=1)
    plain = run(engine, [prompt], **options)[0]
    assert len(plain.prompt_token_ids) < 512 - 8 < 512 + 8 < len(plain.prompt_token_ids) + len(plain.token_ids)

    def half_wrong(tokens: list[int], max_depth: int) -> list[int]:
        right = plain.token_ids[len(tokens) - len(plain.prompt_token_ids) :][:max_depth]
        return [token if place < max_depth // 2 else token + 1 for place, token in enumerate(right)]

    spec = run(Engine(engine.target, FunctionDrafter(half_wrong)), [prompt], max_depth=depth, **options)[0]
    assert spec.token_ids == plain.token_ids
    assert 0 < spec.stats.accepted < spec.stats.proposed


@pytest.mark.real
def test_gre_6_prompt_ids_are_the_same_in_both_modes(smollm2: Any) -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>"
    plain, spec = (
        run(smollm2(None), [prompt], max_new_tokens=2)[0],
        run(smollm2("lookup"), [prompt], max_new_tokens=2)[0],
    )
    assert plain.prompt_token_ids == spec.prompt_token_ids
    assert plain.prompt_token_ids[0] == smollm2(None).target.tokenizer.vocabulary()["<|im_start|>"]


@pytest.mark.real
def test_gre_7_the_same_file_as_target_and_draft(smollm2: Any) -> None:
    plain = run(smollm2(None), ["You are"], max_new_tokens=4)[0]
    spec = run(smollm2("self"), ["You are"], max_new_tokens=4, max_depth=4)[0]
    assert len(spec.token_ids) == 4
    assert spec.token_ids == plain.token_ids
    assert spec.stats.accepted == spec.stats.proposed == 3
