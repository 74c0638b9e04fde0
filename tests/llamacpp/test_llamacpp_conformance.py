"""The conformance suite's promises on real weights under llama.cpp: every drafter, setting and rule, in a batch.

Results are equal up to rounding here, so a difference must be a near tie as measured on this very target.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import outrider
from helpers import run
from helpers_drafters import Reciter
from helpers_speed import quick
from outrider import Completion, Engine
from outrider.acceptance import available_rules, make_rule
from outrider.certify.judge import Judge
from outrider.certify.probe import Probe
from outrider.drafters.base import Drafter
from outrider.drafters.mix import MixDrafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.registry import available_drafters, make_drafter
from outrider.engine.request import Request
from outrider.errors import PairingError
from outrider.sampling.params import SamplingParams
from outrider.structured import Structured
from outrider.targets.base import Target
from outrider.targets.llamacpp.target import LlamaTarget

pytestmark = pytest.mark.real

Loads = Callable[..., LlamaTarget]
Make = Callable[[Loads], Drafter]
PROMPTS = (
    'def cat():\n    """Return it."""\n    return "meow"\n\n\ndef dog():\n    """Return',
    "one two three one two three one two",
    "Once upon a time there was a miller",
)


def gguf_draft(llamacpp: Loads) -> LlamaTarget:
    """The same weights in a context of their own."""
    return llamacpp("smollm2-135m", max_rows=3)


DRAFTERS: dict[str, Make] = {
    "lookup": lambda llamacpp: make_drafter("lookup"),
    "suffix": lambda llamacpp: make_drafter("suffix"),
    "recycle": lambda llamacpp: make_drafter("recycle"),
    "model": lambda llamacpp: ModelDrafter(gguf_draft(llamacpp)),
    "mix": lambda llamacpp: MixDrafter(["suffix", "recycle", ModelDrafter(gguf_draft(llamacpp))]),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "hot": {"temperature": 1.3},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": -0.4},
    "frequency 2": {"frequency_penalty": 2.0},
    "bias and ban": {"logit_bias": {253: 3.0}, "banned_token_ids": [28, 198]},
    "stop text": {"stop": [" three", "return"], "min_new_tokens": 2},
    "logprobs": {"logprobs": 2, "temperature": 0.7},
    "depth 1": {"max_depth": 1},
}


@pytest.fixture(autouse=True)
def _quick() -> Any:
    with quick():
        yield


def judged(target: Target, ones: list[Completion], others: list[Completion], settings: dict[str, Any]) -> None:
    """Two runs of the same requests wrote the same, up to near ties as measured on this target."""
    params = SamplingParams(**settings).resolve({}, target.info.eos_token_ids, target.info.vocab_size)
    judge = Judge(Probe(target), bitwise=target.info.exact == "bitwise")
    for one, other in zip(ones, others, strict=True):
        difference = judge.compare(one, other, params)
        assert difference is None or difference.verdict == "near tie", difference


@cache
def plain(target: Target, setting: str) -> list[Completion]:
    return run(Engine(target), PROMPTS, **settings_of(setting))


def settings_of(setting: str) -> dict[str, Any]:
    return {"temperature": 0.0, "max_new_tokens": 12, "seed": 3, **SETTINGS[setting]}


def test_every_drafter_is_here_or_refused_by_name(llamacpp: Loads) -> None:
    missing = set(available_drafters()) - set(DRAFTERS) - {"none", "self"}
    assert not missing, f"give {missing} an entry in DRAFTERS"
    with pytest.raises(PairingError, match=r"part of its layers.*backend='torch'"):
        outrider.load(llamacpp("smollm2-135m"), "self")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_identical_writes_the_plain_text(llamacpp: Loads, name: str, setting: str) -> None:
    target = llamacpp("smollm2-135m")
    found = run(outrider.load(target, DRAFTERS[name](llamacpp), policy="fixed"), PROMPTS, **settings_of(setting))
    judged(target, plain(target, setting), found, settings_of(setting))
    if name != "recycle" or setting == "greedy":  # it knows nothing yet of texts that do not repeat
        assert sum(one.stats.proposed for one in found) > 0
    if setting == "greedy":
        assert sum(one.stats.accepted for one in found) > 0


@pytest.mark.parametrize("rule", [name for name in available_rules() if make_rule(name).lossless])
@pytest.mark.parametrize("name", ["recycle", "mix"])
def test_greedy_texts_are_the_plain_ones_under_every_rule(llamacpp: Loads, name: str, rule: str) -> None:
    target = llamacpp("smollm2-135m")
    engine = outrider.load(target, DRAFTERS[name](llamacpp), rule=rule, policy="fixed")
    judged(target, plain(target, "greedy"), run(engine, PROMPTS, **settings_of("greedy")), settings_of("greedy"))


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_automatic_policy_writes_the_plain_text(llamacpp: Loads, name: str) -> None:
    target = llamacpp("smollm2-135m")
    found = run(outrider.load(target, DRAFTERS[name](llamacpp)), PROMPTS, **settings_of("greedy"))
    judged(target, plain(target, "greedy"), found, settings_of("greedy"))


@pytest.mark.parametrize("name", ["lookup", "mix"])
def test_gra_3_a_grammar_holds_and_its_text_is_the_plain_one(llamacpp: Loads, name: str) -> None:
    """The file's own tokenizer carries the grammar; a choice, so that even a small model ends it."""
    target = llamacpp("smollm2-135m")
    structured = Structured(target)
    prompt = "The capital of France is the city of"
    choices = ['{"city": "Paris", "population": 2000000}', '{"city": "Lyon"}']

    def asked() -> Request:
        processor = structured.processor(prompt, choice=choices)
        return Request(prompt, SamplingParams(max_new_tokens=40, logits_processors=[processor]))

    plainly = run(Engine(target), [asked()])[0]
    found = run(outrider.load(target, DRAFTERS[name](llamacpp), policy="fixed"), [asked()])[0]
    assert found.token_ids == plainly.token_ids
    assert (found.text, found.finish_reason) in [(choice, "stop") for choice in choices]
    assert found.stats.accepted > 0


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_gre_1_prompts_of_one_to_three_tokens(llamacpp: Loads, depth: int) -> None:
    """With drafts of which every second token is wrong."""
    target = llamacpp("smollm2-135m")
    tokens = target.tokenizer.encode("The names of")
    prompts = [tokens[:size] for size in (1, 2, 3)]
    ones = run(Engine(target), prompts, max_new_tokens=9, temperature=0.0, seed=0)
    half_right = Reciter([one.prompt_token_ids + one.token_ids for one in ones], wrong=lambda place: place % 2 == 0)
    found = run(Engine(target, half_right), prompts, max_new_tokens=9, temperature=0.0, seed=0, max_depth=depth)
    judged(target, ones, found, {"max_new_tokens": 9, "temperature": 0.0, "seed": 0})
    assert all(one.stats.accepted > 0 for one in found)


def test_str_2_no_character_is_cut_by_the_end_of_a_round(llamacpp: Loads) -> None:
    """Characters of several tokens, drafted and plain; the joined stream is the decoded text."""
    target = llamacpp("smollm2-135m")
    prompt = "\U0001f600\U0001f642\U0001f600\U0001f642\U0001f600\U0001f642"
    for engine in (Engine(target), outrider.load(target, "lookup", policy="fixed")):
        events = list(engine.stream(prompt, max_new_tokens=16, temperature=0.0))
        text = "".join(event.text for event in events)
        ids = [token for event in events for token in event.token_ids]
        assert text == target.tokenizer.decode(ids)
        assert "\ufffd" not in text.rstrip("\ufffd")


@pytest.mark.parametrize("prompt", ["x", PROMPTS[0]])
def test_gre_8_drafting_for_itself_nearly_everything_is_kept(llamacpp: Loads, prompt: str) -> None:
    """The same file as draft: only a near tie may part them."""
    target = llamacpp("smollm2-135m")
    engine = outrider.load(target, ModelDrafter(gguf_draft(llamacpp), min_confidence=0.0), policy="fixed")
    found = run(engine, [prompt], max_new_tokens=16, max_depth=5, temperature=0.0)[0]
    assert found.stats.accepted >= 0.8 * found.stats.proposed > 8
