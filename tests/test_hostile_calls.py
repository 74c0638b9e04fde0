"""Whatever is handed to the library by mistake: one clear line that names it, and nothing left behind."""

import contextlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

import outrider
from helpers import World, assert_clean, with_text
from outrider import Engine, Request, SamplingParams
from outrider.drafters.lookup import LookupDrafter
from outrider.errors import OutriderError
from outrider.policy.fixed import FixedPolicy
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(seed=3)
PIECES = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
NAN, INF = float("nan"), float("inf")


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(OutriderError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 400
    return message


PROMPTS: dict[str, Any] = {
    "nothing": None,
    "empty text": "",
    "empty list": [],
    "a number": 3,
    "bytes": b"abc",
    "a set": {1, 2},
    "a mapping": {"role": "user", "content": "a"},
    "floats": [1.0, 2.0],
    "bools": [True, False],
    "words": ["a", "b"],
    "nested": [[1, 2]],
    "two axes": torch.ones(1, 3, dtype=torch.long),
    "float tensor": torch.ones(3),
    "no axis": torch.tensor(3),
    "float array": np.ones(2),
    "negative": [1, -1],
    "beyond": [1, 8],
    "huge": [1 << 70],
    "NaN": [NAN],
    "None inside": [1, None],
    "a mapping after ids": [1, {"role": "user", "content": "a"}],
    "ids after a mapping": [{"role": "user", "content": "a"}, 1],
    "a message without text": [{"role": "user"}],
    "a message without role": [{"content": "a", "name": "b"}],
    "text of no known piece": "\U0001f600",
    "an endless range": range(1 << 40),
    "a generator": (i for i in range(3)),
}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("entry", ["generate", "submit", "stream", "batch", "request"])
def test_prompts(prompt: Any, entry: str) -> None:
    engine = Engine(with_text(WORLD.target(), PIECES))
    calls: dict[str, Callable[[], object]] = {
        "generate": lambda: engine.generate(prompt),
        "submit": lambda: engine.submit(prompt),
        "stream": lambda: engine.stream(prompt),
        "batch": lambda: engine.generate_batch([[1], prompt]),
        "request": lambda: engine.submit(Request(prompt)),
    }
    refused(calls[entry])
    assert_clean(engine)


@pytest.mark.parametrize(
    "good",
    [np.array([1, 2]), torch.tensor([1, 2]), (1, 2), [np.int64(1), np.int32(2)], "bc"],
    ids=repr,
)
def test_prompts_that_mean_two_ids(good: Any) -> None:
    completion = Engine(with_text(WORLD.target(), PIECES)).generate(good, max_new_tokens=4)
    assert completion.prompt_token_ids == (1, 2)
    assert all(type(token) is int for token in completion.prompt_token_ids)


HOSTILE = [None, True, NAN, INF, -1, 1.5, "3", b"3", [], {}, 1 << 70, "x", object(), lambda: 0]
FINE: dict[str, list[Any]] = {  # of these, the ones that mean something
    "timeout": [None, 1.5, INF, 1 << 70],
    "rule": [None],
    "drafter": [None],
    "prefill_chunk": [1 << 70],
    "max_waiting": [None, 1 << 70],
    "max_rows": [],
    "max_length": [],
}


@pytest.mark.parametrize("field", ["params", "drafter", "rule", "timeout"])
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_requests(field: str, value: Any) -> None:
    engine = Engine(WORLD.target(), LookupDrafter())
    if not any(value is fine or value == fine for fine in FINE.get(field, ())):
        refused(lambda: engine.submit(Request([1], **{field: value})))
    assert_clean(engine)


@pytest.mark.parametrize("option", ["prefill_chunk", "max_waiting", "rule", "policy", "drafter", "on_round"])
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_engines(option: str, value: Any) -> None:
    accepted = FINE.get(option, []) + ([None, {}] if option in ("drafter", "policy") else [])
    if option == "on_round":
        accepted = [None, HOSTILE[-1]]
    if any(value is fine for fine in accepted) or (option == "drafter" and value == {}):
        return
    if option == "prefill_chunk" and value == 1 << 70:
        return
    refused(lambda: Engine(WORLD.target(), **{option: value}))


@pytest.mark.parametrize("field", ["max_depth", "max_nodes"])
@pytest.mark.parametrize("value", [value for value in HOSTILE if value not in (None, 1 << 70)], ids=repr)
def test_fixed_policies(field: str, value: Any) -> None:
    refused(lambda: FixedPolicy("lookup", **{"max_depth": 1, field: value}))


@pytest.mark.parametrize("depth", [1 << 70, 10**9])
def test_depths_beyond_reason(depth: int) -> None:
    """As deep as there is room; nothing is laid out for depths that are never drafted."""
    plain = Engine(WORLD.target()).generate([1, 2, 1, 2], max_new_tokens=12).token_ids
    for drafter in (LookupDrafter(), FunctionDrafter(lambda tokens, depth: [1] * min(depth, 99))):
        engine = Engine(WORLD.target(), drafter)
        assert engine.generate([1, 2, 1, 2], max_new_tokens=12, max_depth=depth).token_ids == plain
        by_policy = Engine(WORLD.target(), drafter, policy=FixedPolicy(drafter.name, depth))
        assert by_policy.generate([1, 2, 1, 2], max_new_tokens=12).token_ids == plain


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, np.uint64((1 << 64) - 1)])
def test_seeds_to_the_last(seed: Any) -> None:
    options = {"max_new_tokens": 12, "temperature": 1.2, "seed": seed}
    plain = Engine(WORLD.target()).generate([1], **options)
    assert Engine(WORLD.target(), LookupDrafter()).generate([1], **options).token_ids == plain.token_ids
    assert plain.effective_params["seed"] == int(seed)
    assert type(plain.effective_params["seed"]) is int


@pytest.mark.parametrize(
    "options",
    [
        {"target": 3},
        {"target": None},
        {"target": ""},
        {"target": b"smollm2-135m"},
        {"drafter": 3},
        {"drafter": ""},
        {"drafter": ["lookup"]},
        {"drafter": {"lookup": "lookup"}},
        {"rule": 3},
        {"rule": ""},
        {"policy": 3},
        {"policy": ""},
        {"target": "smollm2-135m", "dtype": 3},
        {"target": "smollm2-135m", "dtype": torch.int8},
        {"target": "smollm2-135m", "device": 3},
        {"target": "smollm2-135m", "device": "abacus"},
        {"target": "smollm2-135m", "max_rows": 0},
        {"target": "smollm2-135m", "max_rows": "2"},
        {"target": "smollm2-135m", "exact": "roughly"},
    ],
    ids=str,
)
def test_load(options: dict[str, Any]) -> None:
    """Told before any model is looked for."""
    refused(lambda: outrider.load(**{"target": WORLD.target(), **options}))


@pytest.mark.parametrize("field", ["vocab_size", "max_rows", "max_length"])
@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, NAN, "3"], ids=repr)
def test_function_targets(field: str, value: Any) -> None:
    refused(lambda: FunctionTarget(**{"next_logits": WORLD.target_logits, "vocab_size": 8, field: value}))


def test_sampling_options_hostile_in_every_field() -> None:
    """The ranges have their own file; here: nothing but an OptionError ever comes out, whatever goes in."""
    bad = [*HOSTILE, [NAN], [[1]], {"a": 1}, {1: "x"}, np.array([1.5]), torch.tensor(3.0), torch.ones(2)]
    for name, value in ((field.name, value) for field in fields(SamplingParams) for value in bad):
        with contextlib.suppress(OutriderError):
            SamplingParams(**{name: value}).resolve({}, (), 8)
