"""The heart of the suite: every drafter, rule, setting and batch writes what plain decoding writes.

Plain decoding is the second writing of it in helpers_reference. Under `identical` texts are equal token for token,
greedy and sampled; under every rule, the lossy one too, greedy texts are.
"""

from functools import cache
from typing import Any

import pytest
from found import PATH_ONLY, RULES, SETTINGS, drafters, make_found, needs_path_only, settings_of

from helpers import World, run, tokens_of
from helpers_drafters import CHARACTERS
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.base import Drafter
from outrider.errors import UnsupportedError

WORLD = World(seed=5)
EOS = (7,)
PROMPTS = WORLD.prompts(3)
ALL = (*drafters(), *CHARACTERS)
GREEDY_SETTINGS = ("plain", "repetition", "frequency", "bias", "min-new", "stop-ids", "budget", "processor")


def make(name: str) -> Drafter:
    return CHARACTERS[name](WORLD, EOS) if name in CHARACTERS else make_found(name, WORLD)


@cache
def plain(setting: str, sampled: bool) -> list[tuple[tuple[int, ...], str]]:
    options = without_speculation(settings_of(setting, sampled))
    return [decode(WORLD.target_logits, prompt, EOS, **options) for prompt in PROMPTS]


def without_speculation(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("max_depth", "logprobs")}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("sampled", [False, True])
def test_plain_runs_of_the_engine_equal_the_reference(setting: str, sampled: bool) -> None:
    completions = run(Engine(WORLD.target(EOS)), PROMPTS, **settings_of(setting, sampled))
    assert tokens_of(completions) == plain(setting, sampled)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("setting", SETTINGS)
def test_identical_equals_plain(name: str, setting: str) -> None:
    engine = Engine(WORLD.target(EOS), make(name))
    for sampled in (False, True):
        completions = run(engine, PROMPTS, **settings_of(setting, sampled))
        assert tokens_of(completions) == plain(setting, sampled)
        assert all(c.stats.lossless and c.stats.rule == "identical" for c in completions)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "identical"])
def test_greedy_equals_plain_under_every_rule(name: str, rule: str) -> None:
    engine = Engine(WORLD.target(EOS), make(name), rule=rule)
    for setting in GREEDY_SETTINGS:
        options = settings_of(setting, sampled=False)
        if needs_path_only(options) and rule not in PATH_ONLY:
            continue
        assert tokens_of(run(engine, PROMPTS, **options)) == plain(setting, False), setting


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in PATH_ONLY])
def test_rules_that_look_ahead_refuse_processors(rule: str) -> None:
    engine = Engine(WORLD.target(), rule=rule)
    with pytest.raises(UnsupportedError, match="logits_processors"):
        engine.generate([1], logits_processors=SETTINGS["processor"]["logits_processors"])


@pytest.mark.parametrize("max_rows", [1, 2, 5])
@pytest.mark.parametrize("name", ALL)
def test_batches_equal_solo_runs(name: str, max_rows: int) -> None:
    """Five requests, each with its own settings, through engines that hold 1, 2 or 5 of them at a time."""
    engine = Engine(WORLD.target(EOS, max_rows=max_rows), make(name), prefill_chunk=3)
    cases = [("everything", True), ("plain", False), ("top-p", True), ("stop-ids-min-new", False), ("hot", True)]
    prompts = [PROMPTS[index % 3] for index in range(5)]
    handles = [engine.submit(prompt, **settings_of(*case)) for prompt, case in zip(prompts, cases, strict=True)]
    while not all(handle.done for handle in handles):
        engine.step()
    found = tokens_of([handle.completion for handle in handles])
    assert found == [plain(*case)[index % 3] for index, case in enumerate(cases)]


@pytest.mark.parametrize("name", ALL)
def test_reports_are_equal_too(name: str) -> None:
    """Log-probabilities, ranks and rivals of every token, bit for bit, whatever was drafted."""
    for sampled in (False, True):
        options = settings_of("everything", sampled) | {"temperature": float(sampled)}
        expected = run(Engine(WORLD.target(EOS)), PROMPTS, **options)
        got = run(Engine(WORLD.target(EOS), make(name)), PROMPTS, **options)
        assert [c.logprobs for c in got] == [c.logprobs for c in expected]


def test_the_suite_sees_wrong_texts() -> None:
    """Negative control: another seed, penalty or history is another text."""
    assert plain("hot", True) != [
        decode(WORLD.target_logits, prompt, EOS, **settings_of("hot", True, seed=12)) for prompt in PROMPTS
    ]
    assert plain("repetition", False) != plain("plain", False) != plain("frequency", False)
