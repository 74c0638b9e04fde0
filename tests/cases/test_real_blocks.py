"""Cases of GRE, EOS, LEN and KVR with real weights: what is cut, counted and rolled back around blocks of drafts.

One greedy text of SmolLM2 is written plainly, and then recited by drafters that know it: rightly, or wrong in places.
"""

from typing import Any

import pytest

from helpers import run, tokens_of
from helpers_drafters import Reciter
from outrider import Completion, Engine, Request, SamplingParams

pytestmark = pytest.mark.real
PROMPT = "The names of the months are January,"
CHAT = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
BUDGET = 20


@pytest.fixture(scope="module")
def greedy(smollm2: Any) -> Completion:
    return run(smollm2(None), [PROMPT], max_new_tokens=BUDGET, ignore_eos=True)[0]


@pytest.fixture(scope="module")
def reciting(smollm2: Any, greedy: Completion) -> Engine:
    return Engine(smollm2(None).target, Reciter([whole(greedy)]))


def whole(completion: Completion) -> tuple[int, ...]:
    return completion.prompt_token_ids + completion.token_ids


def asked(prompt: Any, **settings: Any) -> Request:
    return Request(prompt, SamplingParams(**settings))


def test_gre_1_prompts_of_one_to_three_tokens(smollm2: Any, greedy: Completion) -> None:
    """At every depth, with drafts of which every second token is wrong."""
    prompts = [list(greedy.prompt_token_ids[:size]) for size in (1, 2, 3)]
    plain = run(smollm2(None), prompts, max_new_tokens=9)
    half_right = Reciter([whole(completion) for completion in plain], wrong=lambda depth: depth % 2 == 0)
    for depth in (1, 2, 5):
        found = run(Engine(smollm2(None).target, half_right), prompts, max_new_tokens=9, max_depth=depth)
        assert tokens_of(found) == tokens_of(plain)
        assert all(c.stats.accepted > 0 for c in found)
        assert depth == 1 or all(c.stats.accepted < c.stats.proposed for c in found)


def test_gre_5_same_ids_length_and_reason_for_every_budget(smollm2: Any, reciting: Engine, greedy: Completion) -> None:
    requests = [asked(PROMPT, max_new_tokens=budget, max_depth=9) for budget in range(1, BUDGET + 1)]
    spec = run(reciting, requests)
    assert tokens_of(spec) == [(greedy.token_ids[:budget], "length") for budget in range(1, BUDGET + 1)]
    assert tokens_of(run(smollm2(None), requests[1:4])) == tokens_of(spec[1:4])
    assert spec[-1].stats.rounds < BUDGET / 3


def test_gre_5_the_models_own_end_token(smollm2: Any) -> None:
    plain = run(smollm2(None), [CHAT], max_new_tokens=40)[0]
    after = run(smollm2(None), [CHAT], max_new_tokens=len(plain.token_ids) + 6, ignore_eos=True)[0]
    assert plain.finish_reason == "stop"
    assert plain.stop_match in smollm2(None).target.info.eos_token_ids
    past_the_end = Reciter([whole(after)])  # its drafts go on after the end token
    spec = run(Engine(smollm2(None).target, past_the_end), [CHAT], max_new_tokens=40, max_depth=6)[0]
    assert (spec.token_ids, spec.text, spec.finish_reason) == (plain.token_ids, plain.text, "stop")
    assert spec.stats.accepted > 0


def test_eos_1_the_first_declared_end_token_ends_the_text(smollm2: Any, reciting: Engine, greedy: Completion) -> None:
    """For every place j from 0 to 12, in plain and in always right drafts of 5; a stream shows nothing after it."""
    ends = [greedy.token_ids[place] for place in range(13)]
    requests = [asked(PROMPT, stop_token_ids=[end], max_new_tokens=BUDGET, max_depth=5) for end in ends]
    spec = run(reciting, requests)
    for end, completion in zip(ends, spec, strict=True):
        cut = greedy.token_ids[: greedy.token_ids.index(end) + 1]
        assert (completion.token_ids, completion.finish_reason, completion.stop_match) == (cut, "stop", end)
    assert tokens_of(run(smollm2(None), requests[1:4])) == tokens_of(spec[1:4])
    shown = [token for event in reciting.stream(requests[8]) for token in event.token_ids]
    assert tuple(shown) == spec[8].token_ids


def test_len_1_no_more_tokens_than_asked_for(reciting: Engine, greedy: Completion) -> None:
    grid = [(depth, budget) for depth in (0, 1, 3, 6) for budget in (1, 2, 3, 8)]
    found = run(reciting, [asked(PROMPT, max_depth=depth, max_new_tokens=budget) for depth, budget in grid])
    assert tokens_of(found) == [(greedy.token_ids[:budget], "length") for _, budget in grid]
    assert all(c.stats.max_proposed == min(depth, budget - 1) for (depth, budget), c in zip(grid, found, strict=True))


def test_kvr_1_kvr_5_a_model_that_drafts_for_itself_is_always_right(smollm2: Any, greedy: Completion) -> None:
    """Depths from 1 to 8, prompts of 1 to 4 tokens: any slip in the draft's cache would cost a token."""
    requests = [
        asked(list(greedy.prompt_token_ids[: 1 + depth % 4]), max_depth=depth, max_new_tokens=11, ignore_eos=True)
        for depth in (1, 2, 3, 8)
    ]
    spec = run(smollm2("self"), requests)
    assert [c.stats.accepted for c in spec] == [c.stats.proposed for c in spec] == [11 - c.stats.rounds for c in spec]
    prompts = [list(completion.prompt_token_ids) for completion in spec]
    plain = [c.token_ids for c in run(smollm2(None), prompts, max_new_tokens=11, ignore_eos=True)]
    assert [c.token_ids for c in spec] == plain


def test_kvr_7_a_warm_prefix_gives_the_cold_text(smollm2: Any, greedy: Completion) -> None:
    half_right = Reciter([whole(greedy)], wrong=lambda depth: depth == 3)
    warm = Engine(smollm2(None).target, half_right, reuse_prefixes=True)
    first = warm.generate(PROMPT, max_new_tokens=10)
    assert first.token_ids == greedy.token_ids[:10]
    comma, short = first.prompt_token_ids[-1], first.prompt_token_ids[:5]
    try:
        for second in ([*whole(first), comma, comma], list(short), [*first.prompt_token_ids[:-1], 1, 2]):
            again = warm.generate(second, max_new_tokens=6)
            assert again.token_ids == smollm2(None).generate(second, max_new_tokens=6).token_ids
        assert warm.generate([*whole(first), comma], max_new_tokens=2).stats.reused > len(first.prompt_token_ids)
    finally:
        warm._schedule.slots.drop_warm()  # the target is shared with other tests
