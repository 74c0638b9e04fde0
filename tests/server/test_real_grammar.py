"""GRA-3 in full: a JSON constraint with every drafter on twenty prompts of a real model."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import outrider
from helpers_speed import quick
from outrider import Completion, Engine, Request, SamplingParams
from outrider.drafters.model import ModelDrafter
from outrider.structured import GrammarCompiler, GrammarProcessor
from outrider.targets.base import Target

SUBJECTS = ("kiln", "forge", "river", "cat", "bridge", "violin", "storm", "bakery", "compass", "orchard")
QUESTIONS = [f"Describe a {one} as JSON with a name and its parts." for one in SUBJECTS]
QUESTIONS += [f'Repeat this JSON: {{"name": "{one}", "parts": ["one", "two", "three"], "size": 3}}' for one in SUBJECTS]
TOKENS = 48

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def target(models: Callable[[str], Path]) -> Iterator[Target]:
    models("smollm2-135m")
    with quick():
        yield outrider.load("smollm2-135m").target


@pytest.fixture(scope="module")
def plain(target: Target) -> list[Completion]:
    return answers(Engine(target))


def answers(engine: Engine) -> list[Completion]:
    """The twenty answers, greedy, each with a grammar of its own."""
    info, tokenizer = engine.target.info, engine.target.tokenizer
    assert tokenizer is not None
    compiler = GrammarCompiler(tokenizer, info.vocab_size, info.eos_token_ids)
    requests: list[Request] = []
    for question in QUESTIONS:
        prompt = tokenizer.encode_chat([{"role": "user", "content": question}])
        processor = GrammarProcessor(compiler.json_object(), len(prompt))
        params = SamplingParams(logits_processors=[processor], max_new_tokens=TOKENS, temperature=0.0)
        requests.append(Request(prompt, params))
    return engine.generate_batch(requests)


@pytest.mark.parametrize("drafter", ["lookup", "suffix", "recycle", "model"])
def test_gra_3_every_drafter_writes_the_json_of_constrained_plain_decoding(
    target: Target, plain: list[Completion], drafter: str
) -> None:
    made = ModelDrafter(outrider.load("smollm2-135m").target) if drafter == "model" else drafter
    found = answers(outrider.load(target, made, policy="fixed"))
    assert [one.error for one in found] == [None] * 20
    assert [one.token_ids for one in found] == [one.token_ids for one in plain]
    ended = [one for one in found if one.finish_reason == "stop"]
    assert ended
    for one in ended:
        assert isinstance(json.loads(one.text or ""), dict)
    assert sum(one.stats.accepted for one in found) > 0
