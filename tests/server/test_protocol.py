"""The protocol against the toy: shapes, streams that join up, fields with effect, refusals with their reason."""

import json
import math
import re
from typing import Any

import pytest
from live import ToyServer, until
from openai import OpenAI
from worlds import END, MODEL, make_engine, parts, tokenizer

from outrider.server.schema import ChatRequest, CompletionRequest
from outrider.server.schema_out import ChatCompletion, ErrorAnswer, TextCompletion
from outrider.server.translate import choice_seed
from outrider.tokens import TokenNames

PROMPT = "the kiln held its heat "
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 24, "ignore_eos": True}
TEXT = {"model": MODEL, "prompt": PROMPT, "max_tokens": 24, "ignore_eos": True}


def events(response: Any) -> list[Any]:
    """A stream's JSON events; it ends with [DONE]."""
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1] if not line.startswith(":")]


def chat_ids(content: str = PROMPT) -> list[int]:
    return tokenizer().encode_chat([{"role": "user", "content": content}])


def test_whole_answers_are_what_the_schema_says(toy: ToyServer) -> None:
    for body in (CHAT, {**CHAT, "logprobs": True, "top_logprobs": 2, "n": 2}):
        ChatCompletion.model_validate_json(toy.post("/v1/chat/completions", body).text)
    for body in (TEXT, {**TEXT, "logprobs": 2}, {**TEXT, "prompt": [PROMPT, [1, 2]], "n": 2}):
        TextCompletion.model_validate_json(toy.post("/v1/completions", body).text)


def test_same_text_as_generate(toy: ToyServer) -> None:
    settings = {"temperature": 0.9, "top_p": 0.95, "seed": 11, "frequency_penalty": 0.3, "presence_penalty": 0.2}
    more = {"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1, "logit_bias": {"65": 2.0}}
    answer = toy.post("/v1/chat/completions", {**CHAT, **settings, **more}).json()
    options = {**settings, **more, "logit_bias": {65: 2.0}}
    plain = make_engine().generate(chat_ids(), max_depth=0, max_new_tokens=24, ignore_eos=True, **options)
    assert answer["choices"][0]["message"]["content"] == plain.text
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["usage"]["speculation"]["method"] == "function"


@pytest.mark.parametrize("n", [1, 3])
def test_pieces_join_up_to_the_whole_chat(toy: ToyServer, n: int) -> None:
    body = {**CHAT, "temperature": 1.0, "seed": 3, "n": n, "logprobs": True, "top_logprobs": 1}
    whole = toy.post("/v1/chat/completions", body).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = toy.post("/v1/chat/completions", {**body, **options})
    assert stream.headers["content-type"].startswith("text/event-stream")
    *pieces, last = events(stream)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 24 * n
    assert all(piece["usage"] is None for piece in pieces)
    for choice in whole["choices"]:
        mine = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == choice["index"]]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in mine) == choice["message"]["content"]
        assert [one["finish_reason"] for one in mine if one["finish_reason"]] == [choice["finish_reason"]]
        content = [entry for one in mine if one["logprobs"] for entry in one["logprobs"]["content"]]
        assert content == choice["logprobs"]["content"]


def test_pieces_join_up_to_the_whole_text(toy: ToyServer) -> None:
    body = {**TEXT, "prompt": [PROMPT, "ab"], "logprobs": 1}
    whole = toy.post("/v1/completions", body).json()
    pieces = [piece["choices"][0] for piece in events(toy.post("/v1/completions", {**body, "stream": True}))]
    for choice in whole["choices"]:
        mine = [piece for piece in pieces if piece["index"] == choice["index"]]
        assert "".join(one["text"] for one in mine) == choice["text"]
        for field in ("tokens", "token_logprobs", "text_offset"):
            assert [x for one in mine for x in (one["logprobs"] or {field: []})[field]] == choice["logprobs"][field]


def test_seeds_of_several_answers(toy: ToyServer) -> None:
    body = {**TEXT, "temperature": 1.0, "seed": 5}
    several = [choice["text"] for choice in toy.post("/v1/completions", {**body, "n": 3}).json()["choices"]]
    alone = [
        toy.post("/v1/completions", {**body, "seed": choice_seed(5, index)}).json()["choices"][0]["text"]
        for index in range(3)
    ]
    assert several == alone
    assert len(set(several)) == 3
    assert choice_seed(-1, 0) == (1 << 64) - 1
    toy.post("/v1/completions", {**body, "seed": -1}).raise_for_status()


def test_logprobs_are_the_models_own(toy: ToyServer) -> None:
    body = {**CHAT, "logprobs": True, "top_logprobs": 3, "temperature": 0.7, "seed": 1}
    content = toy.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    options = {"temperature": 0.7, "seed": 1, "max_new_tokens": 24, "ignore_eos": True, "logprobs": 3, "max_depth": 0}
    plain = make_engine().generate(chat_ids(), **options)
    assert [entry["logprob"] for entry in content] == [one.raw_logprob for one in plain.logprobs or ()]
    assert len(content) == 24
    assert all(len(entry["top_logprobs"]) == 3 for entry in content)
    spelled = bytes(byte for entry in content for byte in entry["bytes"]).decode("utf-8", errors="replace")
    assert spelled.replace("<|end|>", "") == plain.text


def test_bytes_of_tokens_that_are_parts_of_characters() -> None:
    names, text = TokenNames(tokenizer()), "é ½ 🙂 \x00\x7f\xad"
    ids = tokenizer().encode(text)
    assert bytes(byte for token in ids for byte in names.utf8(token) or ()) == text.encode()
    assert TokenNames(None).utf8(3) is None
    assert TokenNames(None).text(3) == "3"


def test_stops_end_tokens_and_minimum(toy: ToyServer) -> None:
    full = toy.post("/v1/completions", TEXT).json()["choices"][0]["text"]
    stop = full[10:12]
    cut = toy.post("/v1/completions", {**TEXT, "stop": [stop]}).json()["choices"][0]
    assert (cut["text"], cut["finish_reason"]) == (full[: full.index(stop)], "stop")
    kept = toy.post("/v1/completions", {**TEXT, "stop": stop, "include_stop_str_in_output": True}).json()
    assert kept["choices"][0]["text"] == full[: full.index(stop) + 2]
    first = tokenizer().encode(full)[0]
    ended = toy.post("/v1/completions", {**TEXT, "stop_token_ids": [first]}).json()
    assert ended["usage"]["completion_tokens"] == 1
    later = toy.post("/v1/completions", {**TEXT, "stop_token_ids": [first], "min_tokens": 5}).json()
    assert later["usage"]["completion_tokens"] > 5
    forced = toy.post("/v1/completions", {**TEXT, "ignore_eos": False, "logit_bias": {str(END): 100}}).json()
    assert (forced["choices"][0]["text"], forced["choices"][0]["finish_reason"]) == ("", "stop")


def test_speculation_per_request(toy: ToyServer) -> None:
    def ask(**speculation: Any) -> Any:
        return toy.post("/v1/completions", {**TEXT, "speculation": speculation}).json()

    off, one, lookup, rule = ask(enabled=False), ask(max_depth=1), ask(drafter="lookup"), ask(rule="rejection")
    assert off["usage"]["speculation"]["method"] == "plain"
    assert "max_depth is 0" in off["usage"]["speculation"]["reason"]
    figures = one["usage"]["speculation"]
    assert figures["proposed"] <= figures["rounds"] <= 24
    assert lookup["usage"]["speculation"]["method"] in ("lookup", "plain")
    assert rule["usage"]["speculation"]["rule"] == "rejection"
    assert off["choices"] == one["choices"] == lookup["choices"] == rule["choices"]
    assert ask(rule="typical")["usage"]["speculation"]["lossless"] is False


def test_figures_are_vllms_too(toy: ToyServer) -> None:
    answer = toy.post("/v1/completions", TEXT).json()
    ours, theirs = answer["usage"]["speculation"], answer["metrics"]["speculative_decoding"]
    histogram = theirs["acceptance_histogram"]
    assert theirs["num_draft_tokens"] == ours["proposed"]
    assert theirs["num_accepted_draft_tokens"] == ours["accepted"] == sum(i * c for i, c in enumerate(histogram))
    assert theirs["num_spec_steps"] == sum(histogram)
    assert theirs["mean_acceptance_length"] == 1 + ours["accepted"] / sum(histogram)
    assert len(histogram) == theirs["num_spec_tokens"] + 1
    assert ours["tokens_per_round"] == 24 / ours["rounds"]
    timing = answer["metrics"]
    assert timing["queue_time_ms"] >= 0
    assert timing["tokens_per_second"] > 0
    assert math.isclose(timing["mean_itl_ms"] * 23, timing["generation_time_ms"])
    assert toy.post("/v1/completions", {**TEXT, "n": 2}).json()["metrics"] is None


def test_a_conversations_next_turn_is_not_computed_again(toy: ToyServer) -> None:
    first = toy.post("/v1/chat/completions", CHAT).json()
    said = first["choices"][0]["message"]["content"]
    turns = [*CHAT["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "and then"}]
    warm = toy.post("/v1/chat/completions", {**CHAT, "messages": turns}).json()
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 20
    cold = make_engine().generate(tokenizer().encode_chat(turns), max_new_tokens=24, ignore_eos=True)
    assert warm["choices"][0]["message"]["content"] == cold.text


BAD_CHAT: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"temprature": 1}, 400, "did you mean 'temperature'", "temprature"),
    ({"tools": []}, 400, "'tools' is not supported", "tools"),
    ({"n": "4"}, 400, "valid integer, not '4'", "n"),
    ({"n": True}, 400, "valid integer, not True", "n"),
    ({"n": 17}, 400, "more than this server's 16", "n"),
    ({"n": 0}, 400, "greater than or equal to 1", "n"),
    ({"temperature": -1}, 400, "greater than or equal to 0", "temperature"),
    ({"top_p": 0}, 400, "greater than 0", "top_p"),
    ({"messages": []}, 400, "at least 1", "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "role", "messages.0.role"),
    ({"messages": [{"role": "user", "content": "x", "name": "n"}]}, 400, "not supported", "messages.0.name"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "'text'", "messages.0.content.0.type"),
    ({"max_tokens": 401}, 400, "this server allows 400", "max_tokens"),
    ({"messages": [{"role": "user", "content": "x" * 300}], "max_tokens": 300}, 400, "lower max_tokens", "max_tokens"),
    ({"messages": [{"role": "user", "content": "x" * 600}]}, 400, "the limit is 512", "messages"),
    ({"max_completion_tokens": 5}, 400, "differ", None),
    ({"top_logprobs": 2}, 400, "logprobs: true", None),
    ({"stream_options": {"include_usage": True}}, 400, "stream: true", None),
    ({"stop": [""]}, 400, "none of them empty", "stop"),
    ({"logit_bias": {"257": 1}}, 400, "ids are 0 to 256", "logit_bias"),
    ({"logit_bias": {"a": 1}}, 400, "pattern", None),
    ({"stop_token_ids": [999]}, 400, "ids are 0 to 256", "stop_token_ids"),
    ({"min_tokens": 30}, 400, "min_tokens=30 is more than max_tokens=24", "min_tokens"),
    ({"speculation": {"drafter": "functoin"}}, 400, "did you mean 'function'", "speculation.drafter"),
    ({"speculation": {"rule": "identcal"}}, 400, "did you mean 'identical'", "speculation.rule"),
    ({"speculation": {"max_depth": -1}}, 400, "greater than or equal to 0", "speculation.max_depth"),
    ({"speculation": {"enabled": False, "max_depth": 3}}, 400, "enabled is false", "speculation"),
    ({"speculation": {"depth": 3}}, 400, "'speculation.depth' is not supported", "speculation.depth"),
    ({"response_format": {"type": "xml"}}, 400, "json_schema", "response_format"),
    ({"model": "gpt-9"}, 404, "did you mean|known", None),
    ({"deadline": 0}, 400, "greater than or equal to 0.01", "deadline"),
    ({"seed": 1.5}, 400, "valid integer", "seed"),
]


@pytest.mark.parametrize(("change", "status", "message", "param"), BAD_CHAT, ids=[str(bad[0])[:50] for bad in BAD_CHAT])
def test_refusals_name_the_field(
    toy: ToyServer, change: dict[str, Any], status: int, message: str, param: str | None
) -> None:
    response = toy.post("/v1/chat/completions", {**CHAT, **change})
    assert response.status_code == status, response.text
    error = ErrorAnswer.model_validate_json(response.text).error
    assert any(part in error.message for part in message.split("|")), error.message
    assert "\n" not in error.message
    assert param is None or error.param == param


@pytest.mark.parametrize("prompt", [[], "", [-1], [[]], [1, "a"], 5, {"a": 1}, [257], ["a", ""], "x" * 600])
def test_bad_prompts(toy: ToyServer, prompt: Any) -> None:
    response = toy.post("/v1/completions", {**TEXT, "prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"model": "toy", "prompt": "\xff"}',
    b'{"model": "toy", "prompt": "\\ud800", "max_tokens": 2}',
    b'{"model": "toy", "prompt": "a", "temperature": NaN}',
    b'{"model": "toy", "prompt": "a", "temperature": 1e999}',
    b'{"model": "toy", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"[" * 100000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=[str(body[:40]) for body in BAD_BODIES])
def test_malformed_bodies_get_a_400(toy: ToyServer, body: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        response = toy.post(path, body)
        assert response.status_code == 400, response.text
        ErrorAnswer.model_validate_json(response.text)
    assert toy.post("/v1/completions", {**TEXT, "max_tokens": 1}).status_code == 200


def test_null_is_absence(toy: ToyServer) -> None:
    nulls = dict.fromkeys(set(ChatRequest.model_fields) - set(CHAT))
    assert toy.post("/v1/chat/completions", {**CHAT, **nulls}).status_code == 200
    nulls = dict.fromkeys(set(CompletionRequest.model_fields) - set(TEXT))
    assert toy.post("/v1/completions", {**TEXT, **nulls}).status_code == 200


def test_defaults_of_the_two_endpoints(toy: ToyServer) -> None:
    free = {name: value for name, value in TEXT.items() if name != "max_tokens"}
    assert toy.post("/v1/completions", free).json()["usage"]["completion_tokens"] == 16
    free = {name: value for name, value in CHAT.items() if name != "max_tokens"}
    usage = toy.post("/v1/chat/completions", free).json()["usage"]
    assert usage["completion_tokens"] == min(400, 512 - usage["prompt_tokens"])


def test_models_health_and_pages(toy: ToyServer, openai: OpenAI) -> None:
    model = next(iter(openai.models.list()))
    assert (model.id, model.model_extra["max_model_len"]) == (MODEL, 512)  # pyright: ignore[reportOptionalSubscript]
    assert toy.get("/health").json()["status"] == "ok"
    assert toy.get("/ready").status_code == 200
    for path in ("/", "/docs"):
        page = toy.get(path).text
        assert "<main" in page
        assert not re.search(r"(src|href|url|import)\s*[=(]?\s*[\"'(]?\s*(https?:)?//", page)  # nothing from elsewhere
    assert toy.get("/nothing").status_code == 404
    assert toy.get("/v1/completions").status_code == 405
    for path in ("/nothing", "/v1/completions"):
        ErrorAnswer.model_validate_json(toy.get(path).text)


@pytest.fixture
def openai(toy: ToyServer) -> OpenAI:
    return toy.client


def test_openais_client_reads_both_endpoints(openai: OpenAI) -> None:
    extra = {"ignore_eos": True}
    chat = openai.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": PROMPT}], max_completion_tokens=24, extra_body=extra
    )
    pieces = openai.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": PROMPT}], max_tokens=24, stream=True, extra_body=extra
    )
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == chat.choices[0].message.content
    text = openai.completions.create(model=MODEL, prompt=PROMPT, max_tokens=24, logprobs=1, extra_body=extra)
    assert text.choices[0].logprobs is not None
    assert len(text.choices[0].logprobs.tokens or []) == 24


def test_api_key_and_probes() -> None:
    with ToyServer(parts(api_key="one, two")) as server:
        for headers in (
            {},
            {"authorization": "Bearer three"},
            {"authorization": "one"},
            {"authorization": "Basic one"},
        ):
            for path in ("/v1/models", "/metrics", "/rounds", "/docs", "/openapi.json"):
                response = server.get(path, headers=headers)
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
            assert server.post("/v1/completions", TEXT, headers=headers).status_code == 401
        for key in ("one", "two"):
            good = {"authorization": f"Bearer {key}"}
            assert server.post("/v1/completions", TEXT, headers=good).status_code == 200
        assert server.get("/health").status_code == server.get("/ready").status_code == 200
        page = server.get("/")  # asks for the key itself, and knows nothing without
        assert page.status_code == 200
        assert MODEL not in page.text


def _until_end(lines: Any) -> Any:
    for line in lines:
        if line:
            yield line
        if '"kind": "end"' in line:
            return


_TELLING = ("tokens", "texts", "token", "text", "best", "best_texts", "prompt", "digest", "rest", "stop")


def _texts_in(value: Any, name: str = "") -> set[str]:
    """Names of fields that could tell what was written or asked."""
    if isinstance(value, dict):
        return {one for key, inner in value.items() for one in _texts_in(inner, key)}
    if isinstance(value, list):
        return {one for inner in value for one in _texts_in(inner, name)}
    return {name} if name in _TELLING and isinstance(value, int | str) else set()


def test_request_ids(toy: ToyServer) -> None:
    assert toy.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert toy.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"] not in ("a b", "")


@pytest.mark.parametrize("show_text", [False, True])
def test_rounds_can_be_watched(show_text: bool) -> None:
    with ToyServer(parts(watching={"show_text": show_text})) as server:
        import httpx2 as httpx

        with httpx.stream("GET", f"{server.url}/rounds", timeout=30) as feed:
            lines = feed.iter_lines()
            head = json.loads(next(line for line in lines if line).removeprefix("data: "))
            text = server.post("/v1/completions", TEXT).json()["choices"][0]["text"]
            seen = [json.loads(line.removeprefix("data: ")) for line in _until_end(lines)]
        assert (head["kind"], head["texts"]) == ("header", show_text)
        rows = [row for line in seen if line["kind"] == "round" for row in line["rows"]]
        assert sum(row["delivered"]["count"] for row in rows) == 24
        if show_text:
            assert "".join(piece for row in rows for piece in row["delivered"]["texts"]) == text
        else:
            assert _texts_in(seen) == set()
        assert seen[-1]["lost"] == 0
    until(server.idle)
