"""The page in a real browser: it plays, steps, compares, follows a server, and keeps to its own security policy."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from live import ToyServer
from tapes import PROMPT
from test_hard_days import slow_target
from worlds import parts

from outrider.traces.reader import RecordedRequest, read_trace
from outrider.watch.page import live_page, trace_page
from outrider.watch.serve import PageServer

RANGE = "document.querySelector('.controls input')"
PLACE = f"Number({RANGE}.value)"
SAID = "document.getElementById('said').textContent"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as made:
        yield made


@pytest.fixture(scope="module")
def recorded(path: Path) -> RecordedRequest:
    return read_trace(path).requests[0]


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Browser]:
    """The trace's page, shown by `outrider watch`'s own server."""
    content = trace_page([path.read_text("utf-8")], title=path.name)
    with _serving(PageServer(content)) as url:
        browser.errors.clear()
        browser.look()
        browser.open(url)
        browser.until(f"{RANGE} !== null")
        yield browser
    assert browser.errors == []


class _serving:
    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return self._server.url

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_keys_step_and_every_step_shows_what_happened(page: Browser, recorded: RecordedRequest) -> None:
    place = next(i for i, one in enumerate(recorded.rounds) if one.num_drafted and len(one.row["path"]) > 1)
    for _ in range(place):
        page.press("ArrowRight", shift=True)
    one = recorded.rounds[place]
    count = {"draft": "drafted", "score": "drafted", "keep": "kept"}
    for step, look in count.items():
        assert page.text(".steps [aria-current]").lower() == step
        shown = page.eval(f"document.querySelectorAll('.node.{look}').length")
        assert shown == (len(one.row["path"]) - 1 if step == "keep" else one.num_drafted)
        assert f"Round {place + 1} of {len(recorded.rounds)}" in page.eval(SAID)  # said to a screen reader
        page.press("ArrowRight")
    page.press("ArrowLeft")
    assert page.text(".steps [aria-current]") == "Keep"
    page.press("Home")
    assert page.eval(PLACE) == 0
    page.press("End")
    assert page.text(".written") == PROMPT + recorded.text
    assert f"{len(recorded.token_ids)} tokens" in page.eval(SAID)


def test_space_plays_and_pauses_and_focus_can_be_seen(page: Browser) -> None:
    page.eval("document.querySelector('.controls select').value = '16'")
    page.press(" ")
    assert page.text(".controls .main") == "Pause"
    page.until(f"{PLACE} > 2")
    page.press(" ")
    assert page.text(".controls .main") == "Play"
    stopped = page.eval(PLACE)
    page.eval("new Promise((done) => setTimeout(done, 300))")
    assert page.eval(PLACE) == stopped
    seen: set[str] = set()
    for _ in range(12):
        page.press("Tab")
        outline = page.eval("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", page.eval("document.activeElement.outerHTML.slice(0, 80)")
        seen.add(page.eval("document.activeElement.tagName"))
    assert seen >= {"BUTTON", "SELECT", "INPUT"}


def test_two_runs_side_by_side_with_a_ratio_only_for_equal_tokens(page: Browser) -> None:
    page.eval("document.getElementById('tab-compare').click()")
    assert "The same tokens" in page.text(".verdict")
    page.press("End")
    texts = page.eval("[...document.querySelectorAll('.written')].map((one) => one.textContent)")
    assert texts[0] == texts[1]
    menu = "document.querySelectorAll('header select')[1]"
    page.eval(f"{menu}.selectedIndex = 0; {menu}.dispatchEvent(new Event('change'))")
    assert "1.00 times" in page.text(".verdict")


def test_a_difference_is_told_without_a_ratio(browser: Browser, path: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    lines[-3]["rows"][0]["delivered"]["tokens"] = [1]
    page = tmp_path / "page.html"
    page.write_text(trace_page(["\n".join(map(json.dumps, lines))], title="x"), "utf-8")
    browser.open(f"file://{page}")
    browser.eval("document.getElementById('tab-compare').click()")
    assert "The tokens differ from number" in browser.text(".verdict")
    assert "times" not in browser.text(".verdict")


def test_hostile_texts_stay_texts(browser: Browser, path: Path, tmp_path: Path) -> None:
    evil = "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\"><!--"
    content = path.read_text("utf-8").replace(json.dumps(PROMPT)[1:-1], json.dumps(evil)[1:-1]) + "\n{broken\n"
    page = tmp_path / "page.html"
    page.write_text(trace_page([content], title=evil), "utf-8")
    browser.open(f"file://{page}")
    browser.until("document.querySelector('.written') !== null")
    assert browser.text(".written .prompt") == evil
    assert browser.eval("document.title") == f"Outrider: {evil}"
    assert "1 line of the trace could not be read" in browser.text(".notice")


@pytest.mark.parametrize("width", [1360, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_window_and_can_be_read(page: Browser, width: int, dark: bool) -> None:
    page.look(width, 900, dark)
    for _ in range(8):
        page.press("ArrowRight")
    assert page.eval("document.documentElement.scrollWidth") <= width
    assert page.eval((Path(__file__).parent / "contrast.js").read_text("utf-8")) == []


def test_only_this_machine_and_only_who_knows_the_address() -> None:
    with _serving(PageServer("hello")) as url:
        assert urllib.request.urlopen(url).read() == b"hello"
        asks = [
            urllib.request.Request(url.rsplit("/", 2)[0] + "/"),
            urllib.request.Request(url + "rounds"),
            urllib.request.Request(url, headers={"Host": "elsewhere.example"}),
        ]
        for ask in asks:
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(ask)


# ---- live


@pytest.mark.parametrize("show_text", [False, True])
def test_a_server_shows_its_requests_as_they_run(browser: Browser, show_text: bool) -> None:
    body = {"model": "toy", "prompt": PROMPT, "max_tokens": 60, "ignore_eos": True, "speculation": {"max_depth": 4}}
    made = parts(slow_target(0.002), watching={"show_text": show_text}, api_key="sesame")
    with ToyServer(made) as server, ThreadPoolExecutor(3) as pool:
        browser.errors.clear()
        browser.look()
        browser.open(server.url)
        browser.until("document.querySelector('#key') !== null")
        assert "toy" not in browser.eval("document.body.innerText")
        browser.eval("document.querySelector('#key').value = 'open'; document.querySelector('form').requestSubmit()")
        browser.until("document.body.innerText.includes('does not know this key')")
        browser.eval("document.querySelector('#key').value = 'sesame'; document.querySelector('form').requestSubmit()")
        browser.until("document.querySelector('.state')?.textContent === 'live'")
        assert "null" not in browser.eval("document.body.innerText")  # nothing runs yet
        keys = {"authorization": "Bearer sesame"}
        answers = list(pool.map(lambda _: server.post("/v1/completions", body, headers=keys).json(), range(3)))
        browser.until(
            "[...document.querySelectorAll('.requests tbody tr')]"
            ".filter((row) => row.textContent.includes('length')).length === 3"
        )
        text = answers[0]["choices"][0]["text"]
        assert (text in browser.text(".written")) is show_text
        shown = browser.eval("document.body.innerText")
        assert ("are not shown" in shown) is not show_text
        assert "60" in browser.text(".requests")
    assert [error for error in browser.errors if "401" not in error and "ERR_" not in error] == []


def test_a_server_is_followed_through_the_local_page(browser: Browser) -> None:
    body = {"model": "toy", "prompt": PROMPT, "max_tokens": 20, "ignore_eos": True}
    with ToyServer(parts(api_key="sesame")) as server:
        local = PageServer(live_page("rounds", links=False), rounds=f"{server.url}/rounds", api_key="sesame")
        with _serving(local) as url:
            browser.open(url)
            browser.until("document.querySelector('.state')?.textContent === 'live'")
            assert server.post("/v1/completions", body, headers={"authorization": "Bearer sesame"}).status_code == 200
            browser.until("document.querySelector('.requests').textContent.includes('length')")
            browser.open("about:blank")
