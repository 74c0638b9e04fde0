"""`outrider serve` as people start and stop it, with a tiny model in a folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import torch
from live import CommandServer, until
from transformers import LlamaConfig, LlamaForCausalLM
from worlds import END, tokenizer

from outrider.cli.main import run
from outrider.server.config import ServerConfig
from outrider.traces.reader import read_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers that reads and writes bytes."""
    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(
        vocab_size=257, max_position_embeddings=512, initializer_range=0.4, bos_token_id=None, eos_token_id=END, **sizes
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(path)
    tokenizer().inner.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    trace = str(tmp_path_factory.mktemp("trace") / "rounds.jsonl")
    options = ["--target", str(folder), "--model-name", "tiny", "--drafter", "lookup", "--drafter", "recycle"]
    made = CommandServer(*options, "--max-rows", "2", "--trace", trace)
    made.trace = Path(trace)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        made.wait()
        yield made
    finally:
        made.stop()


BODY: dict[str, Any] = {"model": "tiny", "prompt": "abcabcabc", "max_tokens": 12, "ignore_eos": True}


def test_it_answers_and_traces(server: CommandServer) -> None:
    url = server.wait()
    listed = httpx.get(f"{url}/v1/models").json()["data"][0]
    assert (listed["id"], listed["drafters"]) == ("tiny", ["lookup", "recycle"])
    texts = set()
    for drafter in ("lookup", "recycle"):
        body = {**BODY, "speculation": {"drafter": drafter, "max_depth": 3}}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
        texts.add(answer["choices"][0]["text"])
        assert answer["usage"]["speculation"]["method"] in (drafter, "plain")
    assert len(texts) == 1
    requests = read_trace(server.trace).requests  # pyright: ignore
    assert [len(one.token_ids) for one in requests] == [12, 12]
    assert {one.text for one in requests} == texts
    assert {one.begin["prompt"] for one in requests if one.begin} == {None}  # not asked for


def test_sigterm_finishes_running_streams_and_refuses_new_ones(server: CommandServer) -> None:
    """The last test with this server: it ends it."""
    url = server.wait()
    body = {**BODY, "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as stream:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "x"], "port is 'x'"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--host", "0.0.0.0"], "set an API key"),
        (["--drafter", "lokup"], "did you mean 'lookup'"),
        (["--max-tokens", "0"], "at least 1"),
        (["--deadline", "nan"], "above 0"),
        (["--rule", "identcal"], "did you mean 'identical'"),
        (["--trace", "/nowhere/at/all"], "trace /nowhere/at/all cannot be written"),
        (["--prot", "1"], "did you mean --port"),
        (["--trace-prompts"], "--trace FILE"),
    ],
)
def test_bad_options_get_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_keys_come_from_the_configuration() -> None:
    assert ServerConfig(api_key=" a, b,,").api_keys == ("a", "b")
    assert ServerConfig(host="0.0.0.0", api_key="a").host == "0.0.0.0"
    assert ServerConfig(host="0.0.0.0", insecure=True).api_keys == ()
