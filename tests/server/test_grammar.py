"""Structured output: only legal text, exact under speculation, cut at the grammar's end (GRA-1, GRA-2).

GRA-3, with a real model, is in test_real_clients.py.
"""

import json
import logging
import re
from typing import Any

import pytest
import torch
from live import ToyServer
from worlds import END, MODEL, draft, logits, make_engine, target, tokenizer

from helpers import World
from outrider import Engine, Request, SamplingParams
from outrider.drafters.registry import make_drafter
from outrider.errors import OptionError, UnsupportedError
from outrider.structured import Grammar, GrammarCompiler, GrammarProcessor, Structure, Structured
from outrider.testing import FunctionDrafter

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "who"}], "max_tokens": 120}


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(tokenizer(), 257, [END])


def letters(text: str) -> list[int]:
    return tokenizer().encode(text)


def test_a_grammar_allows_exactly_what_it_says(compiler: GrammarCompiler) -> None:
    grammar = compiler.json_schema({"enum": ["ab", "ac"]})
    assert tokenizer().decode(grammar.legal(257).nonzero().flatten().tolist()) == '"'
    for token in letters('"a'):
        assert grammar.advance(token)
    assert sorted(grammar.legal(257).nonzero().flatten().tolist()) == sorted(letters("bc"))
    assert not grammar.advance(letters("x")[0])  # illegal, and nothing changed
    for token in letters('b"'):
        assert grammar.advance(token)
    assert grammar.legal(257).nonzero().flatten().tolist() == [END]
    assert not grammar.advance(letters("x")[0])
    grammar.back(2)
    assert sorted(grammar.legal(257).nonzero().flatten().tolist()) == sorted(letters("bc"))
    assert tokenizer().decode(grammar.fresh().legal(257).nonzero().flatten().tolist()) == '"'


def test_blanks_are_bounded(compiler: GrammarCompiler) -> None:
    def fits(text: str) -> bool:
        grammar = compiler.json_object()
        return all(grammar.advance(token) for token in letters(text))

    for text in ('{"a":1}', '{"a": 1}', '{\n    "a": [\n\t1, 2\n]\n}', '{"a": "two  blanks"}'):
        assert fits(text)
    for text in ('{  "a": 1}', '{\n\n"a": 1}', '{"a":' + "\n" + " " * 41):
        assert not fits(text)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "banana"}, "banana"),
        ({"properties": {"a": {"not": {"const": 1}}}}, "not"),
        ({"$ref": "http://somewhere"}, "somewhere"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "nsatisfiable"),
    ],
)
def test_what_cannot_be_enforced_is_refused(compiler: GrammarCompiler, schema: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        compiler.json_schema(schema)


def test_tokenizers_that_cannot_be_used() -> None:
    with pytest.raises(UnsupportedError, match="end token"):
        GrammarCompiler(tokenizer(), 257, [])
    with pytest.raises(UnsupportedError, match="fast tokenizer"):
        GrammarCompiler(object(), 257, [END])


def test_the_processor_follows_a_text_that_goes_back(compiler: GrammarCompiler) -> None:
    process = GrammarProcessor(compiler.json_schema({"enum": ["ab", "ac", "b"]}), num_prompt=2)
    row = torch.zeros(257, dtype=torch.float64)

    def legal(text: str) -> list[int]:
        return sorted((process([7, 8, *letters(text)], row) > -1).nonzero().flatten().tolist())

    assert legal('"a') == sorted(letters("bc"))
    assert legal('"b') == letters('"')
    assert legal('"ac"') == [END]
    assert legal('"ac"x') == [END]  # past the end, as with an ignored end token
    assert legal("") == letters('"')
    assert row.sum() == 0  # the model's own logits are untouched


class Matcher:
    """GRA-1's stub: a constraint that raises when it is fed after its end."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def consume_token(self, token: int) -> bool:
        if self._inner.is_stopped():
            raise RuntimeError("fed after its end")
        return self._inner.consume_token(token)


@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_gra_1_the_block_is_cut_at_the_grammars_end(compiler: GrammarCompiler, beyond: int) -> None:
    whole = letters('{"name":"ada","age":36}')

    def eager(tokens: list[int], depth: int) -> list[int]:
        """The right text, then the end token, then `beyond` tokens past the end."""
        written = tokens[2:]
        return [*whole, END, *[9] * beyond][len(written) :][:depth]

    def script(tokens: list[int]) -> torch.Tensor:
        row = torch.zeros(257, dtype=torch.float64)
        place = len(tokens) - 2
        row[whole[place] if place < len(whole) else 9] = 9.0  # after the text the model itself would go on
        return row

    def processor() -> GrammarProcessor:
        return GrammarProcessor(Grammar(Matcher(compiler.json_schema(PERSON)._matcher), [END]), 2)

    engine = Engine(target(script), FunctionDrafter(eager))
    options = {"max_new_tokens": 60, "max_depth": 8}
    answer = engine.generate([1, 2], logits_processors=[processor()], **options)
    plain = engine.generate([1, 2], logits_processors=[processor()], max_new_tokens=60, max_depth=0)
    assert answer.token_ids == plain.token_ids == (*whole, END)
    assert answer.finish_reason == plain.finish_reason == "stop"
    assert answer.stats.accepted > 0
    assert json.loads(answer.text or "") == {"name": "ada", "age": 36}


def test_gra_2_illegal_draft_tokens_are_only_rejected(
    compiler: GrammarCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(tokens: list[int], depth: int) -> list[int]:
        return [*draft(tokens, 1), *letters("}}}")][:depth]

    engine = make_engine(wrong=FunctionDrafter(wrong))
    texts = []
    with caplog.at_level(logging.DEBUG):
        for depth in (0, 1, 4):
            processor = GrammarProcessor(compiler.json_schema(PERSON), 2)
            options = {"logits_processors": [processor], "max_new_tokens": 80, "temperature": 1.0, "seed": 4}
            answer = engine.generate([1, 2], max_depth=depth, **options)
            assert answer.finish_reason == "stop"
            texts.append(answer.token_ids)
    assert texts[0] == texts[1] == texts[2]
    assert set(json.loads(answer.text or "")) == {"name", "age"}
    assert not caplog.records


@pytest.mark.parametrize("drafter", [None, "function", "lookup"])
def test_over_http_json_is_json_and_the_same_with_any_drafter(toy: ToyServer, drafter: str | None) -> None:
    speculation = {"enabled": False} if drafter is None else {"drafter": drafter}
    plain = make_engine()
    for seed in range(3):
        wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        body = {**CHAT, "temperature": 1.0, "seed": seed, "response_format": wanted, "speculation": speculation}
        answer = toy.post("/v1/chat/completions", body).json()
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert set(json.loads(choice["message"]["content"])) == {"name", "age"}
        prompt = tokenizer().encode_chat(CHAT["messages"])
        processor = GrammarProcessor(GrammarCompiler(tokenizer(), 257, [END]).json_schema(PERSON), len(prompt))
        options = {"logits_processors": [processor], "max_new_tokens": 120, "temperature": 1.0, "seed": seed}
        assert choice["message"]["content"] == plain.generate(prompt, max_depth=0, **options).text


def test_over_http_json_object_text_and_refusals(toy: ToyServer) -> None:
    body = {**CHAT, "max_tokens": 40, "response_format": {"type": "json_object"}, "n": 2, "temperature": 1.0}
    for choice in toy.post("/v1/chat/completions", body).json()["choices"]:
        assert choice["message"]["content"].lstrip().startswith("{")
        if choice["finish_reason"] == "stop":
            json.loads(choice["message"]["content"])
    free = toy.post("/v1/chat/completions", {**CHAT, "max_tokens": 8, "response_format": {"type": "text"}})
    assert free.json()["usage"]["completion_tokens"] <= 8
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "banana"}}}
    for change, param in (
        ({"response_format": bad}, "response_format"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"speculation": {"rule": "block"}}, "speculation.rule"),
    ):
        response = toy.post("/v1/chat/completions", {**body, **change})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_the_toys_logits_are_not_json_by_chance() -> None:
    assert chr(int(logits([1, 2]).argmax())) != "{"


# ---------------------------------------------------------------- patterns, choices, grammars; guiding drafts

LARK = """start: "set " name "=" /[0-9]{1,3}/
name: "speed" | "speech"
"""


def fits(grammar: Grammar, text: str) -> bool:
    fresh = grammar.fresh()
    return all(fresh.advance(token) for token in letters(text)) and fresh.allows(END)


def test_patterns_choices_and_grammars(compiler: GrammarCompiler) -> None:
    year = compiler.regex("(19|20)[0-9]{2}")
    assert [fits(year, text) for text in ("1987", "2026", "1887", "198", "19870")] == [True, True, False, False, False]
    choice = compiler.choice(["yes", "yet", 'n"o'])
    assert [fits(choice, text) for text in ("yes", "yet", 'n"o', "ye", "no")] == [True, True, True, False, False]
    rules = compiler.lark(LARK)
    assert [fits(rules, text) for text in ("set speed=12", "set speech=7", "set spee=7")] == [True, True, False]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda c: c.regex("("), "regular expression cannot be enforced"),
        (lambda c: c.lark("nonsense:"), "grammar cannot be enforced"),
        (lambda c: c.choice([]), "list of texts"),
        (lambda c: c.choice("yes"), "list of texts"),
        (lambda c: c.choice(["yes", ""]), "not empty"),
        (lambda c: Structure(), "none was given"),
        (lambda c: Structure(regex="a", choice=["a"]), "regex and choice was given"),
    ],
)
def test_bad_structures_are_refused(compiler: GrammarCompiler, make: Any, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        make(compiler)


def test_what_is_forced_is_known_and_leaves_no_trace(compiler: GrammarCompiler) -> None:
    process, row = GrammarProcessor(compiler.lark(LARK), 1), torch.zeros(257)
    before = process([5], row)
    assert tokenizer().decode(process.forced([5], 99)) == "set spee"
    assert process.forced([5], 3) == letters("set")
    assert tokenizer().decode(process.forced([5, *letters("set speec")], 99)) == "h="
    assert process.forced([5, *letters("set speed=12")], 9) == []  # a third digit may come, or the end
    assert process.forced([5, *letters("set speed=123")], 9) == [END]
    assert process.forced([5, *letters("sat")], 9) == []
    assert process.forced([5, *letters("set speed=123"), END], 9) == []
    assert process.allows([5, *letters("set speed=12")], END)
    assert not process.allows([5, *letters("set speed=1")], letters("x")[0])
    assert not process.allows([5, *letters("set speed=12"), END], END)
    assert torch.equal(process([5], row), before)


@pytest.mark.parametrize("rule", ["identical", "rejection"])
@pytest.mark.parametrize("drafter", ["function", "mix"])
def test_guided_drafts_change_no_text_and_save_passes(compiler: GrammarCompiler, drafter: str, rule: str) -> None:
    engine = make_engine(mix=make_drafter("mix"))
    for grammar in (
        compiler.lark(LARK),
        compiler.choice(["yes, it does", "no, it does not"]),
        compiler.json_schema(PERSON),
    ):
        for temperature in (0.0, 1.0) if rule == "identical" else (0.0,):
            request = {"max_new_tokens": 60, "temperature": temperature, "seed": 1}
            texts = []
            for depth in (None, 0):
                params = SamplingParams(
                    **request, max_depth=depth, logits_processors=(GrammarProcessor(grammar.fresh(), 2),)
                )
                texts.append(engine.generate(Request([1, 2], params, drafter=drafter, rule=rule)))
            assert texts[0].token_ids == texts[1].token_ids
            assert texts[0].finish_reason == texts[1].finish_reason == "stop"
            assert texts[0].stats.accepted_by["grammar"] > 3
            assert texts[0].stats.rounds < texts[1].stats.rounds
            assert texts[1].stats.proposed == 0


def test_processors_for_a_prompt(compiler: GrammarCompiler) -> None:
    engine = make_engine()
    made = Structured(engine.target)
    answer = engine.generate("who", logits_processors=[made.processor("who", choice=["ada", "bob"])], max_new_tokens=9)
    assert answer.text in ("ada", "bob")
    with pytest.raises(UnsupportedError, match="tokenizer"):
        Structured(World().target())


def test_over_http_structured_outputs(toy: ToyServer) -> None:
    for wanted, pattern in (
        ({"regex": "[a-c]{3}[0-9]"}, "[a-c]{3}[0-9]"),
        ({"choice": ["left", "right"]}, "left|right"),
        ({"grammar": LARK}, "set spee(d|ch)=[0-9]{1,3}"),
        ({"json": {"enum": ["x"]}}, '"x"'),
    ):
        body = {**CHAT, "temperature": 1.0, "seed": 1, "structured_outputs": wanted}
        text = toy.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
        assert re.fullmatch(pattern, text), text
    for wrong, more in (
        ({"regex": "("}, {}),
        ({}, {}),
        ({"regex": "a", "choice": ["a"]}, {}),
        ({"regex": "a"}, {"response_format": {"type": "json_object"}}),
        ({"regex": "a"}, {"ignore_eos": True}),
    ):
        assert toy.post("/v1/chat/completions", {**CHAT, **more, "structured_outputs": wrong}).status_code == 400
