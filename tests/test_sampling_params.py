"""Settings: ranges, messages, defaults of the model, what is shown."""

import json
import math

import numpy as np
import pytest

from outrider.errors import OptionError
from outrider.sampling.params import PLAIN_DEFAULTS, SamplingParams


def halve(token_ids, logits):
    return logits / 2


BAD = [
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", "hot"),
    ("temperature", True),
    ("temperature", 10**400),
    ("top_k", -1),
    ("top_k", 1.5),
    ("top_k", "4"),
    ("top_k", True),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("min_p", 1.5),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", -1),
    ("presence_penalty", math.inf),
    ("frequency_penalty", math.nan),
    ("frequency_penalty", "1"),
    ("logit_bias", [1, 2]),
    ("logit_bias", {"1": 2.0}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {1: math.inf}),
    ("logit_bias", {-1: 1.0}),
    ("banned_token_ids", 5),
    ("banned_token_ids", "5"),
    ("banned_token_ids", [-1]),
    ("banned_token_ids", [1.0]),
    ("min_new_tokens", -1),
    ("max_new_tokens", 0),
    ("max_new_tokens", -5),
    ("max_new_tokens", True),
    ("seed", -1),
    ("seed", 1 << 64),
    ("seed", 1.0),
    ("stop_token_ids", 2),
    ("stop_token_ids", [True]),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", [1]),
    ("stop", 1),
    ("stop", b"a"),
    ("include_stop", 1),
    ("include_stop", None),
    ("ignore_eos", "yes"),
    ("logits_processors", halve),
    ("logits_processors", [1]),
    ("logits_processors", None),
    ("logprobs", -1),
    ("logprobs", True),
    ("max_depth", -1),
    ("max_depth", 1.5),
    ("max_depth", "4"),
    ("max_depth", math.nan),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_in_one_line_naming_option_and_value(name, value):
    with pytest.raises(OptionError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    assert name in message
    assert "\n" not in message
    inner = next(iter(value.values() or value)) if isinstance(value, dict) else value
    shown = [repr(inner), *(repr(item) for item in inner)] if isinstance(inner, (list, tuple)) else [repr(inner)]
    assert any(item in message for item in (*shown, *(map(repr, value) if isinstance(value, dict) else ())))


def test_the_range_is_named():
    for name, value, words in [
        ("top_k", -1, "an integer from 0"),
        ("top_p", 2, "above 0 to 1"),
        ("min_p", 2, "from 0 to 1"),
        ("temperature", -1, "a finite number from 0"),
        ("max_new_tokens", 0, "an integer from 1"),
        ("seed", -1, f"from 0 to {2**64 - 1}"),
    ]:
        with pytest.raises(OptionError, match=words):
            SamplingParams(**{name: value})


def test_every_option_has_a_refused_value_in_this_file():
    assert {name for name, _ in BAD} == set(SamplingParams.__dataclass_fields__)


def test_good_values_become_plain_types():
    params = SamplingParams(
        temperature=np.float32(0.5),
        top_k=np.int64(3),
        logit_bias={np.int64(1): 2},
        stop="x",
        stop_token_ids=[1, 2],
        max_new_tokens=1,
        seed=(1 << 64) - 1,
        logits_processors=[halve],
        presence_penalty=-2,
    )
    assert (params.temperature, params.top_k, params.logit_bias) == (0.5, 3, {1: 2.0})
    assert (params.stop, params.stop_token_ids, params.logits_processors) == (("x",), (1, 2), (halve,))
    assert [type(v) for v in (params.temperature, params.top_k, params.presence_penalty)] == [float, int, float]


def test_the_callers_own_objects_may_change_later():
    bias, stops = {1: 1.0}, ["a"]
    params = SamplingParams(logit_bias=bias, stop=stops)
    bias[2] = 2.0
    stops.append("b")
    assert (params.logit_bias, params.stop) == ({1: 1.0}, ("a",))


def test_opt_5_unknown_names_are_refused_with_a_hint():
    with pytest.raises(OptionError, match="unknown sampling option 'temprature'; did you mean 'temperature'"):
        SamplingParams.from_options(temprature=1)
    with pytest.raises(OptionError, match=r"'num_beams'.*known: .*top_k"):
        SamplingParams.from_options(num_beams=4)
    assert SamplingParams.from_options(top_k=4).top_k == 4


# ---- resolve


def test_plain_defaults_fill_everything():
    params = SamplingParams().resolve({}, (2,), 10)
    assert params.greedy
    assert all(getattr(params, name) == value for name, value in PLAIN_DEFAULTS.items())
    assert params.seed is not None
    assert params.seed != SamplingParams().resolve({}, (2,), 10).seed
    assert not params.shapes_logits
    assert not params.truncates


def test_gre_4_the_models_defaults_apply_and_are_shown():
    defaults = {"do_sample": True, "top_k": 20, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": None}
    shown = SamplingParams(seed=1).resolve(defaults, (2,), 100).to_dict()
    assert (shown["temperature"], shown["top_k"], shown["repetition_penalty"], shown["top_p"]) == (0.7, 20, 1.05, 1.0)


@pytest.mark.parametrize(
    ("defaults", "temperature"),
    [
        ({}, 0.0),
        ({"temperature": 0.7}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"do_sample": True, "temperature": 0.7}, 0.7),
        ({"do_sample": True, "temperature": 0}, 0.0),
    ],
)
def test_the_models_temperature_counts_only_if_it_samples(defaults, temperature):
    assert SamplingParams().resolve(defaults, (), 10).temperature == temperature
    assert SamplingParams(temperature=0.3).resolve(defaults, (), 10).temperature == 0.3


def test_what_the_request_says_wins_over_the_model():
    given = SamplingParams(repetition_penalty=1.0, top_k=0, temperature=0.0, seed=0, stop=())
    params = given.resolve({"do_sample": True, "repetition_penalty": 1.2, "top_k": 50}, (), 100)
    assert (params.repetition_penalty, params.top_k, params.temperature, params.seed) == (1.0, 0, 0.0, 0)


def test_a_bad_or_unknown_default_of_the_model_is_named_as_such():
    with pytest.raises(OptionError, match=r"top_p must be .* not 7.*model's generation defaults"):
        SamplingParams().resolve({"top_p": 7}, (), 10)
    with pytest.raises(OptionError, match=r"'no_repeat_ngram_size'.*not supported"):
        SamplingParams().resolve({"no_repeat_ngram_size": 3}, (), 10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"banned_token_ids": [3, 10]}, "banned_token_ids holds 10, .* 0 to 9"),
        ({"stop_token_ids": [11]}, "stop_token_ids holds 11"),
        ({"logit_bias": {12: 1.0}}, "logit_bias holds 12"),
        ({"banned_token_ids": range(10)}, "bans all 10"),
        ({"logprobs": 11}, "logprobs must be at most .* 10, not 11"),
        ({"min_new_tokens": 5, "max_new_tokens": 4}, "min_new_tokens=5 is more than max_new_tokens=4"),
        ({"min_new_tokens": 257}, "min_new_tokens=257 is more than max_new_tokens=256"),
    ],
)
def test_resolve_checks_against_the_vocabulary_and_itself(options, words):
    with pytest.raises(OptionError, match=words):
        SamplingParams(**options).resolve({}, (2,), 10)


def test_resolving_twice_changes_nothing():
    once = SamplingParams(temperature=0.5, stop="x").resolve({"do_sample": True, "top_k": 5}, (2,), 10)
    assert once.resolve({"do_sample": True, "top_k": 7}, (2,), 10) == once


def test_eos_7_every_end_token_counts():
    params = SamplingParams(stop_token_ids=[7, 2])
    assert params.end_token_ids((2, 9)) == (2, 7, 9)
    assert SamplingParams(ignore_eos=True, stop_token_ids=[7]).end_token_ids((2, 9)) == (7,)
    assert SamplingParams(ignore_eos=True).end_token_ids((2, 9)) == ()


def test_to_dict_survives_json():
    class Named:
        def __call__(self, token_ids, logits):
            return logits

    params = SamplingParams(
        temperature=1.0, logit_bias={3: 1.0}, stop=["a", "b"], logits_processors=[halve, Named()], seed=5
    ).resolve({}, (2,), 10)
    shown = params.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["logit_bias"], shown["stop"]) == ({"3": 1.0}, ["a", "b"])
    assert shown["logits_processors"] == ["halve", "Named"]
    assert set(shown) == set(SamplingParams.__dataclass_fields__)


@pytest.mark.parametrize(
    ("options", "shapes", "truncates"),
    [
        ({"logit_bias": {1: 1.0}}, True, False),
        ({"logit_bias": {}}, False, False),
        ({"banned_token_ids": [1]}, True, False),
        ({"min_new_tokens": 1}, True, False),
        ({"logits_processors": [halve]}, True, False),
        ({"repetition_penalty": 1.1}, True, False),
        ({"presence_penalty": 0.1}, True, False),
        ({"frequency_penalty": -0.1}, True, False),
        ({"top_k": 1}, False, True),
        ({"top_p": 0.9}, False, True),
        ({"min_p": 0.1}, False, True),
        ({"temperature": 2.0}, False, False),
    ],
)
def test_which_settings_change_logits_and_which_truncate(options, shapes, truncates):
    for params in (SamplingParams(**options), SamplingParams(**options).resolve({}, (), 10)):
        assert (params.shapes_logits, params.truncates) == (shapes, truncates)
