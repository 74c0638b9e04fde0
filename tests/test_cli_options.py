"""Every setting has an option, made from its field; what is typed arrives, and what cannot be is refused by name."""

import dataclasses

import pytest

from helpers_cli import outrider
from outrider import SamplingParams
from outrider.cli.options import help_from_docstring, sampling_parameters, sampling_values
from outrider.errors import OptionError

FIELDS = [field.name for field in dataclasses.fields(SamplingParams)]
TYPED = {
    "temperature": ("0.7", 0.7),
    "top_k": ("5", 5),
    "top_p": ("0.9", 0.9),
    "min_p": ("0.1", 0.1),
    "repetition_penalty": ("1.1", 1.1),
    "presence_penalty": ("-0.5", -0.5),
    "frequency_penalty": ("0.5", 0.5),
    "logit_bias": (["3=-2.5,4=1", "5=0"], {3: -2.5, 4: 1.0, 5: 0.0}),
    "banned_token_ids": (["1,2", "3"], [1, 2, 3]),
    "min_new_tokens": ("2", 2),
    "max_new_tokens": ("9", 9),
    "seed": ("0", 0),
    "stop_token_ids": (["7"], [7]),
    "stop": (["a, b", "c"], ["a, b", "c"]),
    "include_stop": (True, True),
    "ignore_eos": (True, True),
    "logits_processors": (["math:floor"], [__import__("math").floor]),
    "logprobs": ("0", 0),
    "max_depth": ("0", 0),
}


def test_there_is_an_option_with_help_for_every_field_and_no_other():
    assert [p.name for p in sampling_parameters()] == FIELDS
    texts = help_from_docstring(SamplingParams, FIELDS)
    assert [name for name in FIELDS if not texts[name]] == []
    assert texts["top_k"] == "keep the k likeliest tokens [0 = off]."
    assert len(set(texts.values())) == len(FIELDS)
    shown = outrider("generate", "--help").out
    assert [name for name in FIELDS if f"--{name.replace('_', '-')}" not in shown] == []


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_typed_arrives_as_the_value_of_its_field(name):
    typed, value = TYPED[name]
    absent = dict.fromkeys(FIELDS)
    assert sampling_values({**absent, name: typed}) == {name: value}
    SamplingParams.from_options(**sampling_values({name: typed}))


def test_what_is_not_typed_is_left_to_the_model():
    assert sampling_values({**dict.fromkeys(FIELDS), "ignore_eos": False, "stop": []}) == {}


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("stop_token_ids", ["x"]),
        ("logit_bias", ["3"]),
        ("logit_bias", ["a=1"]),
        ("logits_processors", ["no_such_module:f"]),
        ("logits_processors", ["math:no_such_function"]),
        ("logits_processors", [""]),
    ],
)
def test_lists_that_cannot_be_read_are_refused_by_name(name, typed):
    with pytest.raises(OptionError, match=name):
        sampling_values({name: typed})
