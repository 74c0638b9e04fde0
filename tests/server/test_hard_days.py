"""Slow readers, clients that leave, crowds, huge bodies, broken drafters: every fault stays with its own request."""

import json
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest
import torch
from live import ToyServer, until
from test_protocol import TEXT, events
from worlds import MODEL, draft, logits, make_engine, parts, target, tokenizer

from outrider.errors import OutriderWarning
from outrider.server import logs
from outrider.testing import FunctionDrafter

LONG = {**TEXT, "max_tokens": 300}


def raw(server: ToyServer, body: Any, path: str = "/v1/completions") -> socket.socket:
    """A connection that has sent a request and read nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.connect(("127.0.0.1", server.port))
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    return connection


def slow_target(seconds: float = 0.01, **options: Any) -> Any:
    def slow(tokens: list[int]) -> torch.Tensor:
        time.sleep(seconds)
        return logits(tokens)

    return target(slow, **options)


def test_sixty_four_clients_at_once_all_get_their_own_answer() -> None:
    plain = make_engine()
    bodies = [{**TEXT, "prompt": [i, 1, 2], "max_tokens": 6, "temperature": 0.9, "seed": i} for i in range(64)]
    options = [{"max_new_tokens": 6, "temperature": 0.9, "seed": i, "ignore_eos": True} for i in range(64)]
    expected = [plain.generate([i, 1, 2], max_depth=0, **options[i]).text for i in range(64)]
    with ToyServer(parts(max_waiting=64)) as server:
        with ThreadPoolExecutor(64) as pool:

            def ask(place: int) -> str:
                if place % 2:
                    return server.post("/v1/completions", bodies[place]).json()["choices"][0]["text"]
                pieces = events(server.post("/v1/completions", {**bodies[place], "stream": True}))
                return "".join(piece["choices"][0]["text"] for piece in pieces)

            assert list(pool.map(ask, range(64))) == expected
        until(server.idle)


def test_full_queue_says_429_and_when_to_come_back() -> None:
    with ToyServer(parts(slow_target(), max_waiting=1)) as server, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: server.post("/v1/completions", {**TEXT, "max_tokens": 12}), range(12)))
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert len(refused) < 12
        assert {answer.status_code for answer in answers} == {200, 429}
        assert int(refused[0].headers["retry-after"]) >= 1
        assert 'outrider_requests_refused_total{model_name="toy",reason="queue"}' in server.get("/metrics").text


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_row_within_a_round(stream: bool) -> None:
    model = slow_target()
    with ToyServer(parts(model)) as server:
        connection = raw(server, {**LONG, "stream": stream})
        until(lambda: server.runner.num_running == 1)
        passes = model.num_passes
        connection.close()
        until(server.idle)
        assert model.num_passes < passes + 40  # 300 tokens would have taken many more
        assert server.post("/v1/completions", {**TEXT, "max_tokens": 2}).status_code == 200


def test_a_client_that_leaves_while_it_waits_leaves_the_queue() -> None:
    with ToyServer(parts(slow_target(max_rows=1))) as server:
        first, second = raw(server, LONG), raw(server, LONG)
        until(lambda: server.runner.num_waiting == 1)
        second.close()
        until(lambda: server.runner.num_waiting == 0)
        assert server.runner.num_running == 1
        first.close()
        until(server.idle)


def test_a_slow_reader_delays_nobody() -> None:
    body = {**TEXT, "max_tokens": 200, "stream": True, "logprobs": 20}  # much to send
    with ToyServer(parts(), send_buffer=4096) as server:
        lazy = [raw(server, body) for _ in range(2)]
        start = time.monotonic()
        answer = server.post("/v1/completions", {**TEXT, "max_tokens": 20})
        assert answer.status_code == 200
        until(server.idle)  # the engine finished the lazy readers' texts, read or not
        assert time.monotonic() - start < 60
        read = b""
        while not read.endswith(b"0\r\n\r\n"):
            read += lazy[0].recv(65536)
        assert b"data: [DONE]" in read
        for connection in lazy:
            connection.close()


def test_a_reader_that_never_reads_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    body = {**TEXT, "max_tokens": 200, "stream": True, "logprobs": 20}
    with ToyServer(parts(send_timeout=0.3), send_buffer=4096) as server, caplog.at_level("INFO", "outrider.server"):
        connection = raw(server, body)
        until(lambda: "blocked" in [getattr(record, "fields", {}).get("end") for record in caplog.records])
        until(server.idle)
        connection.close()
        assert server.post("/v1/completions", {**TEXT, "max_tokens": 2}).status_code == 200


JSON = {"content-type": "application/json"}


def test_a_body_that_does_not_say_that_it_is_json() -> None:
    """What `curl -d` sends without a header, and no type at all; parameters of the right type are fine."""
    with ToyServer(parts()) as server:
        for headers, kind in (({"content-type": "application/x-www-form-urlencoded"}, "form-urlencoded"), ({}, "''")):
            answer = httpx.post(f"{server.url}/v1/completions", content=json.dumps(TEXT), headers=headers)
            assert answer.status_code == 415
            message = answer.json()["error"]["message"]
            assert kind in message
            assert "application/json" in message
        typed = {"content-type": "application/json; charset=utf-8"}
        assert httpx.post(f"{server.url}/v1/completions", content=json.dumps(TEXT), headers=typed).status_code == 200
        assert httpx.post(f"{server.url}/v1/completions").status_code == 400


def test_bodies_too_large_or_too_slow() -> None:
    with ToyServer(parts(max_body_bytes=1000, body_timeout=0.5)) as server:
        huge = server.post("/v1/completions", {**TEXT, "prompt": "x" * 2000})
        assert (huge.status_code, "limit of 1000 bytes" in huge.text) == (413, True)

        def chunks() -> Any:
            for _ in range(30):
                yield b"x" * 100

        streamed = httpx.post(f"{server.url}/v1/completions", content=chunks(), headers=JSON, timeout=30)
        assert streamed.status_code == 413
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 100\r\n\r\n{")
            connection.settimeout(30)
            assert b"408" in connection.recv(4096)
        assert server.post("/v1/completions", {**TEXT, "max_tokens": 2}).status_code == 200


@pytest.mark.parametrize("body", [b'{"prompt": "\xff"}', b"[" * 100_000, b'{"max_tokens": ' + b"9" * 5000 + b"}"])
def test_a_body_that_cannot_be_read_says_what_may_be_wrong(body: bytes) -> None:
    with ToyServer(parts()) as server:
        answer = httpx.post(f"{server.url}/v1/completions", content=body, headers=JSON)
        assert answer.status_code == 400
        assert "not UTF-8, nested too deep" in answer.text


def test_warnings_are_lines_of_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "showwarning", logs._log_warning)
    with caplog.at_level("WARNING", "outrider.server"):
        warnings.showwarning(OutriderWarning("drafter 'model' was given up"), OutriderWarning, "engine.py", 1)
    line = json.loads(logs.JsonLines().format(caplog.records[-1]))
    assert (line["event"], line["level"], line["warning"]) == ("warning", "warning", "drafter 'model' was given up")


def test_bodies_that_are_too_much_together() -> None:
    """One open request holds most of what all may hold: a second waits outside, told when to come back."""
    with ToyServer(parts(slow_target(), max_body_bytes=600, max_pending_bytes=650)) as server:
        first = raw(server, {**LONG, "user": "u" * 250})
        until(lambda: server.runner.num_running == 1)
        refused = server.post("/v1/completions", {**TEXT, "user": "u" * 250})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_bytes")
        assert "limit is 650" in refused.text
        assert refused.headers["retry-after"]
        assert server.post("/v1/completions", {**TEXT, "max_tokens": 2}).status_code == 200
        assert 'reason="bytes"' in server.get("/metrics").text
        first.close()
        until(server.idle)
        assert server.post("/v1/completions", {**TEXT, "max_tokens": 2, "user": "u" * 250}).status_code == 200


def test_too_many_clients_but_probes_get_through() -> None:
    with ToyServer(parts(slow_target(), max_clients=2)) as server:
        open_ones = [raw(server, LONG) for _ in range(2)]
        until(lambda: server.runner.num_running == 2)
        refused = server.post("/v1/completions", TEXT)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert server.get("/health").status_code == 200
        for connection in open_ones:
            connection.close()
        until(server.idle)


def test_a_broken_drafter_is_told_to_its_own_client() -> None:
    def broken(tokens: list[int], depth: int) -> list[int]:
        raise RuntimeError("no ideas left")

    def late(tokens: list[int], depth: int) -> list[int]:
        return broken(tokens, depth) if len(tokens) > 40 else draft(tokens, depth)

    drafters = {"broken": FunctionDrafter(broken), "late": FunctionDrafter(late)}
    with ToyServer(parts(drafters=drafters)) as server, ThreadPoolExecutor(4) as pool:
        good = pool.submit(server.post, "/v1/completions", {**TEXT, "max_tokens": 60})
        bad = server.post("/v1/completions", {**TEXT, "speculation": {"drafter": "broken"}})
        assert (bad.status_code, bad.json()["error"]["code"]) == (500, "generation_failed")
        assert "no ideas left" in bad.json()["error"]["message"]
        body = {**TEXT, "max_tokens": 60, "stream": True, "speculation": {"drafter": "late"}}
        *pieces, last = events(server.post("/v1/completions", body))
        assert pieces
        assert "no ideas left" in last["error"]["message"]
        assert good.result().status_code == 200
        until(server.idle)


def test_nan_logits_and_unknown_faults_of_a_target() -> None:
    def sick(tokens: list[int]) -> torch.Tensor:
        if tokens[0] == 66:
            return torch.full((257,), torch.nan, dtype=torch.float64)
        return logits(tokens)

    with ToyServer(parts(target(sick))) as server:
        bad = server.post("/v1/completions", {**TEXT, "prompt": [66, 1]})
        assert (bad.status_code, bad.json()["error"]["code"]) == (500, "generation_failed")
        assert server.post("/v1/completions", TEXT).status_code == 200
        assert 'outrider_request_errors_total{kind="TargetError",model_name="toy"} 1.0' in server.get("/metrics").text

    def secret(tokens: list[int]) -> torch.Tensor:
        raise KeyError("/secret/path")

    with ToyServer(parts(target(secret))) as server:
        hidden = server.post("/v1/completions", TEXT)
        assert (hidden.status_code, hidden.json()["error"]["code"]) == (500, "internal_error")
        assert "secret" not in hidden.text
        for _ in range(2):
            server.post("/v1/completions", TEXT)
        assert server.get("/ready").status_code == 503


def test_deadlines() -> None:
    with ToyServer(parts(slow_target(), deadline=0.6)) as server:
        whole = server.post("/v1/completions", LONG)
        assert (whole.status_code, whole.json()["error"]["code"]) == (504, "deadline_exceeded")
        body = {**LONG, "stream": True, "deadline": 0.3}
        *pieces, last = events(server.post("/v1/completions", body))
        assert pieces
        assert "0.3 s" in last["error"]["message"]
        until(server.idle)


def test_shutdown_refuses_new_requests_and_ends_streams_clearly() -> None:
    with ToyServer(parts(slow_target())) as server, ThreadPoolExecutor(2) as pool:
        stream = pool.submit(server.post, "/v1/completions", {**LONG, "stream": True})
        whole = pool.submit(server.post, "/v1/completions", LONG)
        until(lambda: server.runner.num_running == 2)
        server.runner.drain()
        refused = server.post("/v1/completions", TEXT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["retry-after"]
        assert server.get("/ready").status_code == 503
        server.runner.stop()
        assert events(stream.result())[-1]["error"]["code"] == "shutting_down"
        assert whole.result().status_code == 503


def test_a_long_prompt_does_not_stall_running_streams() -> None:
    """Chunked prefill: while a prompt of 1,500 tokens is read, a running stream goes on."""
    with ToyServer(parts(slow_target(0.002, max_length=2048))) as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json={**LONG, "stream": True}, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            long = {**TEXT, "prompt": [[7] * 1500], "max_tokens": 1}
            done = threading.Event()

            def ask() -> None:
                server.post("/v1/completions", long)
                done.set()

            threading.Thread(target=ask).start()
            pieces = 0
            for line in lines:
                pieces += line.startswith("data: {")
                if done.is_set():
                    break
        assert pieces > 4  # at least one round per chunk of 256
        until(server.idle)


def test_prompts_stay_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    secret = "zqxjkv secret words"
    for log_prompts in (False, True):
        caplog.clear()
        with ToyServer(parts(log_prompts=log_prompts)) as server, caplog.at_level("INFO", "outrider.server"):
            server.post("/v1/completions", {**TEXT, "prompt": secret, "user": "somebody"})
            until(lambda: any(record.getMessage() == "request" for record in caplog.records))
        written = json.dumps([getattr(record, "fields", {}) for record in caplog.records])
        assert (secret in written) is log_prompts
        assert "somebody" in written
        assert '"written_tokens": 24' in written


@pytest.mark.slow
def test_memory_is_flat_over_two_thousand_requests() -> None:
    import gc

    import psutil

    with ToyServer(parts()) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        process, sizes = psutil.Process(), []
        for number in range(2000):
            body = {**TEXT, "prompt": [number % 250, 1], "max_tokens": 2, "stream": number % 3 == 0}
            client.post("/v1/completions", json=body)
            if number % 250 == 249:
                gc.collect()
                sizes.append(process.memory_info().rss)
    assert sizes[-1] - sizes[2] < 8_000_000, sizes


def test_tokenizer_of_the_toy_reads_its_own_writing() -> None:
    assert tokenizer().decode(tokenizer().encode("grüß 🙂")) == "grüß 🙂"
    assert MODEL == "toy"
