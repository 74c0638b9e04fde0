"""The load benchmark against the toy: it counts right, compares answers, and says what is wrong."""

import json

import pytest
from live import ToyServer
from worlds import MODEL, make_engine

from outrider.acceptance import make_rule
from outrider.cli.main import run
from outrider.cli.serve import first_key
from outrider.errors import EngineError, OptionError
from outrider.server import build
from outrider.server.config import ServerConfig
from outrider.server.load import Level, LoadClient, Sample, run_levels, table, while_all_ask

TURNS = [[{"role": "user", "content": text}] for text in ("one", "two", "three")]


def test_levels_are_counted_and_equal(toy: ToyServer) -> None:
    seen: list[Level] = []
    client = LoadClient(toy.url, MODEL, TURNS, max_tokens=6)
    levels = run_levels(client, [3, 1], 2, seen.append)
    assert seen == levels
    assert [(one.clients, one.requests, one.tokens) for one in levels] == [(1, 4, 24), (3, 12, 72)]
    assert all(one.equal and one.ratio and one.tokens_per_round >= 1 for one in levels)
    assert "1.0" not in table(levels).splitlines()[0]
    assert len(table(levels).splitlines()) == 3


def test_speed_counts_while_all_clients_ask() -> None:
    """Two clients, three requests of ten tokens: when the first finds none left, half of the last answer is there."""
    samples = [Sample(10, 100.0, 2.0, "", 1), Sample(10, 100.0, 3.0, "", 1), Sample(10, 102.0, 2.0, "", 1)]
    assert while_all_ask(samples) == (25.0, 3.0)
    assert while_all_ask(samples[:1]) == (10.0, 2.0)


def test_no_ratio_where_answers_differ() -> None:
    level = Level(1, 1, 4, 10.0, 5.0, 0.1, 0.1, 2.0, equal=False)
    assert level.ratio is None
    assert "DIFFERS" in table([level])


def test_failures_are_told(toy: ToyServer) -> None:
    with pytest.raises(EngineError, match="404: no model 'nope'"):
        LoadClient(toy.url, "nope", TURNS, max_tokens=2).warm_up()
    with pytest.raises(EngineError, match="no answer from"):
        LoadClient("http://127.0.0.1:9", MODEL, TURNS, max_tokens=2).warm_up()
    with pytest.raises(OptionError, match="give one such as"):
        LoadClient("localhost:8000", MODEL, TURNS, max_tokens=2)


def test_the_command(toy: ToyServer, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["loadtest", "--url", toy.url, "--target", MODEL, "--max-tokens", "2", "--requests", "1"]
    assert run([*base, "--clients", "1,2"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [level["clients"] for level in last["levels"]] == [1, 2]
    assert run([*base, "--clients", "0"]) == 2
    assert "write numbers such as" in capsys.readouterr().err


@pytest.mark.parametrize("afresh", [False, True])
def test_a_server_may_compute_every_prompt_in_full(afresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one that the command starts does, so that neither way finds the other's prompts warm."""
    monkeypatch.setattr(build, "load_target", lambda *_, **__: make_engine().target)
    parts = build.load_parts([], make_rule("identical"), ServerConfig(no_prefix_reuse=afresh), target="toy")
    turns = [{"role": "user", "content": "the kiln held its heat overnight"}]
    body = {"model": "toy", "messages": turns, "max_tokens": 9, "ignore_eos": True}
    with ToyServer(parts) as server:
        answers = [server.post("/v1/chat/completions", body).json() for _ in range(2)]
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0
    assert (cached[1] == 0) == afresh
    assert answers[0]["choices"] == answers[1]["choices"]


def test_one_of_several_keys_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, sent in ((" one , two", "one"), ("", None), (",", None), ("only", "only")):
        monkeypatch.setenv("OUTRIDER_API_KEY", value)
        assert first_key() == sent
