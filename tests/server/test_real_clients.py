"""A real model behind the server, and OpenAI's own client: every answer is what the library writes without it."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from live import ToyServer, until

from outrider import Completion, Engine
from outrider.drafters.registry import make_drafter
from outrider.server.build import make_parts
from outrider.server.config import ServerConfig
from outrider.structured import GrammarCompiler, GrammarProcessor
from outrider.targets.base import Target

pytestmark = pytest.mark.real
MODEL = "smollm2-135m"
QUESTION: list[Any] = [{"role": "user", "content": "Repeat three times: the kiln held its heat overnight."}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "people": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
SETTINGS: list[dict[str, Any]] = [{"temperature": float(seed > 0), "seed": seed} for seed in range(3)]
TOKENS = 12


@pytest.fixture(scope="module")
def target(models: Callable[[str], Path]) -> Target:
    from outrider.targets.hf.loader import load_target

    models(MODEL)
    return load_target(MODEL, max_length=256, max_rows=4)


@pytest.fixture(scope="module")
def expected(target: Target) -> list[Completion]:
    """What the library writes, plain and alone, before the server has the model."""
    plain = Engine(target)
    return [plain.generate(QUESTION, max_new_tokens=TOKENS, ignore_eos=True, **one) for one in SETTINGS]


@pytest.fixture(scope="module")
def expected_json(target: Target) -> Completion:
    plain, info = Engine(target), target.info
    prompt = target.tokenizer.encode_chat(QUESTION)  # pyright: ignore[reportOptionalMemberAccess]
    grammar = GrammarCompiler(target.tokenizer, info.vocab_size, info.eos_token_ids).json_schema(CITY)
    return plain.generate(prompt, logits_processors=[GrammarProcessor(grammar, len(prompt))], max_new_tokens=40)


@pytest.fixture(scope="module")
def client(target: Target, expected: Any, expected_json: Any) -> Iterator[openai.OpenAI]:
    parts = make_parts(
        lambda: Engine(target, make_drafter("lookup"), reuse_prefixes=True),
        ["lookup"],
        ServerConfig(),
        target_name=MODEL,
    )
    with ToyServer(parts) as server:
        yield server.client
        until(server.idle)


def ask(client: openai.OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=QUESTION, **options)


def test_alone_and_among_others_the_answers_are_the_librarys(client: openai.OpenAI, expected: list[Completion]) -> None:
    options: dict[str, Any] = {"max_tokens": TOKENS, "extra_body": {"ignore_eos": True}}
    alone = ask(client, **options, **SETTINGS[0])
    assert alone.choices[0].message.content == expected[0].text
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda one: ask(client, **options, **one), SETTINGS))
    assert [answer.choices[0].message.content for answer in answers] == [one.text for one in expected]
    assert all(answer.usage.prompt_tokens_details.cached_tokens > 20 for answer in answers)  # warm equals cold


def test_a_stream_with_usage_and_figures(client: openai.OpenAI, expected: list[Completion]) -> None:
    options: dict[str, Any] = {"max_tokens": TOKENS, "extra_body": {"ignore_eos": True}, "stream": True}
    pieces = list(ask(client, **options, stream_options={"include_usage": True}))
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == expected[0].text
    assert pieces[-1].usage.completion_tokens == TOKENS
    figures = pieces[-1].usage.model_extra["speculation"]
    assert figures["lossless"] is True
    assert figures["rounds"] < TOKENS  # the prompt asks for a repetition, which lookup finds
    assert pieces[-1].model_extra["metrics"]["speculative_decoding"]["num_draft_tokens"] == figures["proposed"]


@pytest.mark.parametrize("depth", [0, 4])
def test_gra_3_json_is_json_and_equals_constrained_plain_decoding(
    client: openai.OpenAI, expected_json: Completion, depth: int
) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": CITY}}
    extra = {"speculation": {"max_depth": depth}}
    answer = ask(client, max_tokens=40, response_format=wanted, logprobs=True, top_logprobs=2, extra_body=extra)
    assert answer.choices[0].finish_reason == expected_json.finish_reason == "stop"
    assert answer.choices[0].message.content == expected_json.text
    assert set(json.loads(answer.choices[0].message.content)) == {"city", "people"}
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens


def test_errors_are_openais_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="'tools' is not supported"):
        ask(client, tools=[])
