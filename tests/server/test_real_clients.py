"""`outrider serve` as people run it, a real model, and OpenAI's own client."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest
from live import CommandServer, until

import outrider

pytestmark = pytest.mark.real
MODEL = "smollm2-135m"
QUESTION = [{"role": "user", "content": "Repeat three times: the kiln held its heat overnight."}]


@pytest.fixture(scope="module")
def server(models: Callable[[str], Path]) -> Iterator[CommandServer]:
    models(MODEL)
    made = CommandServer("--target", MODEL, "--max-length", "512", "--max-rows", "4", "--drain", "20")
    try:
        made.wait()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def client(server: CommandServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.wait()}/v1", api_key="any", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def plain() -> outrider.Engine:
    return outrider.load(MODEL, max_length=512, max_rows=1)


def test_chat_alone_and_among_others_is_what_generate_says(client: openai.OpenAI, plain: outrider.Engine) -> None:
    expected = plain.generate(QUESTION, max_new_tokens=32, max_depth=0)
    answers: list[Any] = []

    def ask(seed: int) -> None:
        options = {"temperature": 0.0} if seed == 0 else {"temperature": 1.0, "seed": seed}
        answers.append((seed, client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=32, **options)))  # pyright: ignore

    ask(0)
    threads = [threading.Thread(target=ask, args=(seed,)) for seed in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, answer in answers:
        if seed == 0:
            assert answer.choices[0].message.content == expected.text
            assert answer.usage.completion_tokens == len(expected.token_ids)
    sampled = next(answer for seed, answer in answers if seed == 2)
    again = plain.generate(QUESTION, max_new_tokens=32, temperature=1.0, seed=2)
    assert sampled.choices[0].message.content == again.text


def test_stream_with_usage_and_figures(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"max_tokens": 24, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, **options)  # pyright: ignore
    options |= {"stream": True, "stream_options": {"include_usage": True}}
    pieces = list(client.chat.completions.create(model=MODEL, messages=QUESTION, **options))  # pyright: ignore
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage.completion_tokens == 24
    figures = pieces[-1].usage.model_extra["speculation"]
    assert figures["lossless"] is True
    assert figures["rounds"] < 24  # the prompt asks for a repetition, which lookup finds
    assert pieces[-1].model_extra["metrics"]["speculative_decoding"]["num_draft_tokens"] == figures["proposed"]


def test_structured_output_and_logprobs(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
    schema |= {"additionalProperties": False}
    options: dict[str, Any] = {"max_tokens": 40, "logprobs": True, "top_logprobs": 2}
    options |= {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, **options)  # pyright: ignore
    assert json.loads(answer.choices[0].message.content or "")["city"] in ("Oslo", "Rome")
    content = answer.choices[0].logprobs.content  # pyright: ignore
    assert len(content) == answer.usage.completion_tokens  # pyright: ignore


def test_errors_are_openais_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)  # pyright: ignore
    with pytest.raises(openai.BadRequestError, match="'tools' is not supported"):
        client.chat.completions.create(model=MODEL, messages=QUESTION, tools=[])  # pyright: ignore


def test_sigterm_finishes_running_streams_and_refuses_new_ones(server: CommandServer, client: openai.OpenAI) -> None:
    """The last test of the module: it ends the server."""
    url = server.wait()
    body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 60, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120) as stream:
        lines = stream.iter_lines()
        next(lines)
        server.signal()
        until(lambda: any("draining" in line for line in server.lines))
        refused = httpx.post(f"{url}/v1/completions", json=body, timeout=30)
        assert refused.status_code == 503
        assert httpx.get(f"{url}/ready", timeout=30).status_code == 503
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(30) == 0
    assert not any("Traceback" in line for line in server.lines)
