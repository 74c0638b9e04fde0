"""Structured output: only legal text, exact under speculation, cut at the grammar's end (GRA-1, GRA-2).

GRA-3, with a real model, is in test_real_clients.py.
"""

import json
import logging
from typing import Any

import pytest
import torch
from live import ToyServer
from worlds import END, MODEL, draft, logits, make_engine, target, tokenizer

from outrider import Engine
from outrider.errors import OptionError, UnsupportedError
from outrider.structured import Grammar, GrammarCompiler, GrammarProcessor
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
