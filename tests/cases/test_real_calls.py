"""Cases of SEE, SPD and OPT with real weights: seeds, neighbours, calls one after another, options, depth per call."""

from typing import Any

import pytest

from helpers import run, tokens_of
from outrider import Engine, Request, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.policy.make import make_policy
from outrider.testing import FunctionDrafter

pytestmark = pytest.mark.real
PROMPT = "I will never miss any tokens. I will never miss any tokens. I will"
HOT = {"temperature": 2.0, "max_new_tokens": 8}
OTHERS = ["Once upon a time", "def f(x):", "The sea", "1, 2, 3, 1, 2, 3,"]


def random_neighbours(count: int) -> list[Request]:
    return [
        Request(OTHERS[seed % 4], SamplingParams(seed=seed, temperature=1.2, max_new_tokens=4 + seed))
        for seed in range(count)
    ]


def test_see_1_the_same_seed_is_the_same_text_at_every_depth_and_among_others(smollm2: Any) -> None:
    alone = run(smollm2(None), [PROMPT], seed=42, **HOT)[0].token_ids
    mine = [Request(PROMPT, SamplingParams(seed=42, max_depth=depth, **HOT)) for depth in (0, 1, 3, 5)]
    mixed = [request for pair in zip(mine, random_neighbours(4), strict=True) for request in pair]
    assert {c.token_ids for c in run(smollm2("lookup"), mixed)[::2]} == {alone}
    assert run(smollm2("lookup"), [PROMPT], seed=42, **HOT)[0].token_ids == alone
    assert run(smollm2("lookup"), [PROMPT], seed=43, **HOT)[0].token_ids != alone


@pytest.mark.slow
def test_see_3_a_greedy_request_among_random_neighbours(smollm2: Any) -> None:
    alone = run(smollm2(None), [PROMPT], max_new_tokens=9)
    mixed = [x for other in random_neighbours(3) for x in (Request(PROMPT, SamplingParams(max_new_tokens=9)), other)]
    assert tokens_of(run(smollm2("lookup"), mixed))[::2] == tokens_of(alone) * 3


def test_see_4_calls_leave_no_state(smollm2: Any) -> None:
    """Under a policy that does not learn, so that the figures are the same too."""
    engine = Engine(smollm2(None).target, LookupDrafter())

    def call(prompt: str) -> Any:
        completion = run(engine, [prompt], max_new_tokens=7)[0]
        return completion.token_ids, completion.stats.proposed, completion.stats.accepted

    first = call(PROMPT)
    other = call(OTHERS[3])
    assert call(PROMPT) == first
    assert call(OTHERS[3]) == other
    assert first[1] > 0


def test_spd_4_depth_is_set_per_call_and_read_back(smollm2: Any) -> None:
    requests = [Request(PROMPT, SamplingParams(max_depth=depth, max_new_tokens=12)) for depth in (0, 3, 10)]
    found = run(smollm2("lookup"), requests)
    assert [c.stats.max_proposed for c in found] == [0, 3, 10]
    assert len(set(tokens_of(found))) == 1


def test_spd_4_drafts_that_are_never_right_are_soon_given_up(smollm2: Any) -> None:
    """Under the default policy, whatever the machine's speed: a wrong draft costs and brings nothing. No clock here."""
    wrong = FunctionDrafter(lambda tokens, depth: [17] * depth)
    policy = make_policy("auto", {"function": wrong})
    drafted: list[bool] = []
    engine = Engine(
        smollm2(None).target, wrong, policy=policy, on_round=lambda trace: drafted.append(len(trace.rows[0].tokens) > 1)
    )
    found = run(engine, ["The old house by the sea"], max_new_tokens=28)[0]
    assert found.stats.accepted == 0 < found.stats.proposed
    assert len(drafted) == 28
    assert sum(drafted[14:]) <= 4  # a try now and then; costs are measured, and on a busy machine badly
    assert found.token_ids == run(smollm2(None), ["The old house by the sea"], max_new_tokens=28)[0].token_ids


BASE = {"max_new_tokens": 8, "seed": 7}
OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"temperature": 1.3}),
    ({"temperature": 1.3}, {"seed": 8}),
    ({"temperature": 1.3}, {"top_k": 3}),
    ({"temperature": 1.3}, {"top_p": 0.3}),
    ({"temperature": 1.3}, {"min_p": 0.5}),
    ({}, {"repetition_penalty": 1.6}),
    ({}, {"presence_penalty": 2.0}),
    ({}, {"frequency_penalty": 2.0}),
    ({}, {"logit_bias": {260: 25.0}}),
    ({}, {"banned_token_ids": "the first token that is written"}),
    ({}, {"max_new_tokens": 5}),
    ({}, {"stop_token_ids": "the first token that is written"}),
    ({"stop_token_ids": "the first token that is written"}, {"min_new_tokens": 6}),
    ({}, {"stop": [" "]}),
    ({"stop": [" "]}, {"include_stop": True}),
]


@pytest.mark.slow
def test_opt_5_every_option_has_its_effect_in_both_modes(smollm2: Any) -> None:
    """Each option against the same request without it: the text changes, and with drafts as it does without."""
    prompt = "one two three one two three one two"
    first = run(smollm2(None), [prompt], **BASE)[0].token_ids[0]

    def request(settings: dict[str, Any]) -> Request:
        filled = {name: [first] if isinstance(value, str) else value for name, value in settings.items()}
        return Request(prompt, SamplingParams(**{**BASE, **filled}))

    settings = {str(chosen): chosen for base, option in OPTIONS for chosen in (base, {**base, **option})}
    requests = [request(chosen) for chosen in settings.values()]
    plain, spec = run(smollm2(None), requests), run(Engine(smollm2(None).target, LookupDrafter()), requests)
    assert [(c.token_ids, c.text) for c in spec] == [(c.token_ids, c.text) for c in plain]
    assert sum(c.stats.accepted for c in spec) > 10
    texts = dict(zip(settings, [(c.token_ids, c.text) for c in spec], strict=True))
    assert [option for base, option in OPTIONS if texts[str(base)] == texts[str({**base, **option})]] == []
