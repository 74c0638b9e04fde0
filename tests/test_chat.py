"""The chat: turns that compute only what is new, answers that can be stopped, and what a person can say to it."""

import io
import json
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent / "server"))  # worlds

from worlds import logits, make_engine, target

from outrider.chat import Conversation
from outrider.chat.loop import Chat
from outrider.cli.chat import in_words
from outrider.engine.engine import Engine
from outrider.errors import OptionError

SETTINGS = {"max_new_tokens": 12, "ignore_eos": True, "temperature": 0.9, "seed": 4}


def answer(events: Iterator[Any]) -> str:
    return "".join(event.text for event in events)


def conversation(**settings: Any) -> Conversation:
    return Conversation(make_engine(), {**SETTINGS, **settings})


def test_a_turn_computes_only_what_is_new_and_says_what_a_fresh_engine_says() -> None:
    talk = conversation()
    for question in ("what is a kiln?", "and a forge?", "thank you"):
        text = answer(talk.ask(question))
        assert talk.last
        fresh = make_engine().generate(talk.prompt[:-1], max_depth=0, **SETTINGS)
        assert (text, talk.last.token_ids) == (fresh.text, fresh.token_ids)
    assert talk.last
    new = len(talk.last.prompt_token_ids) - talk.last.stats.reused
    assert 0 < new <= len("assistant: ") + 12 + len("\nuser: thank you\n")  # the template has no opening for answers
    assert [message["role"] for message in talk.messages] == ["user", "assistant"] * 3


def test_an_answer_that_is_stopped_keeps_what_was_written() -> None:
    talk = conversation(max_new_tokens=40)
    events = talk.ask("go on")
    seen = "".join(next(events).text for _ in range(5))
    events.close()  # pyright: ignore
    assert talk.messages[-1]["role"] == "assistant"
    assert talk.messages[-1]["content"].startswith(seen)
    assert talk.engine.num_running == 0
    assert answer(talk.ask("and?"))


def test_regenerate_answers_the_same_message_with_another_seed() -> None:
    talk = conversation()
    first = answer(talk.ask("name a river"))
    second = answer(talk.regenerate())
    assert first != second
    assert len(talk.messages) == 2
    assert not talk.always_the_same
    calm = conversation(temperature=0.0)
    assert answer(calm.ask("x")) == answer(calm.regenerate())
    assert calm.always_the_same
    with pytest.raises(OptionError, match="nothing was asked"):
        conversation().regenerate()


def test_another_answer_that_does_not_come_leaves_the_earlier_one() -> None:
    talk = conversation(seed=2**64 - 1)
    answer(talk.ask("name a river"))
    answer(talk.regenerate())  # the seed after the last one is the first
    assert len(talk.messages) == 2
    before = [*talk.messages]
    events = talk.regenerate()
    talk.engine.step = lambda: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        next(events)
    assert talk.messages == before


def test_an_answer_that_fails_takes_its_message_back() -> None:
    def sick(tokens: list[int], row: Any) -> Any:
        raise RuntimeError("ill")

    talk = conversation(logits_processors=[sick])
    with pytest.raises(Exception, match="ill"):
        answer(talk.ask("hello"))
    assert talk.messages == []


# ---- the loop


def chat(lines: list[Any], engine: Engine | None = None, **settings: Any) -> tuple[str, str]:
    """What a person sees who types these lines; an exception among them is what reading raises."""
    script = iter([*lines, EOFError()])

    def read(prompt: str) -> str:
        line = next(script)
        if isinstance(line, BaseException):
            raise line
        return line

    out, notes = io.StringIO(), io.StringIO()
    talk = Conversation(engine or make_engine(), {**SETTINGS, **settings})
    consoles = [Console(file=file, width=200, soft_wrap=True) for file in (out, notes)]
    Chat(talk, read, *consoles, figures=in_words).run()
    return out.getvalue(), notes.getvalue()


def test_commands_say_what_they_did(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    lines = ["/figures", "/system be brief", "hello", "/figures", f"/save {file}", f"/save {file}", "/reset", "/help"]
    _, notes = chat([*lines, "/regenerate", "/figurs", "/save", "/save /nowhere/x", KeyboardInterrupt(), ""])
    saved = json.loads(file.read_text("utf-8"))["messages"]
    assert [message["role"] for message in saved] == ["system", "user", "assistant"]
    for said in (
        "nothing was answered yet",
        "is told this first",
        "tokens in",
        "were there already",
        "saved to",
        "exists; choose another name",
        "a new conversation",
        "/regenerate",
        "nothing was asked yet",
        "did you mean 'figures'",
        "needs the name of a file",
        "cannot write '/nowhere/x'",
        "Ctrl-D leaves",
    ):
        assert said in notes, said


def test_slashes_can_be_said_and_quit_leaves() -> None:
    seen: list[Any] = []
    engine = make_engine()
    submit = engine.submit
    engine.submit = lambda prompt, **options: (seen.append(prompt), submit(prompt, **options))[1]  # type: ignore
    chat(["//help me", "/quit", "never"], engine)
    assert [prompt[-1]["content"] for prompt in seen] == ["/help me"]


def test_temperature_0_is_told_before_an_answer_again() -> None:
    out, notes = chat(["hello", "/regenerate"], temperature=0.0)
    assert "the answer is the same again" in notes
    first, second = (part for part in out.split("\n") if part)
    assert first == second


# ---- through a pseudo-terminal


class Terminal:
    """A child process behind a pseudo-terminal that runs `body`; type(...), until(...)."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                body()
            finally:
                os._exit(0)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, text: str, seconds: float = 60, size: int = 0) -> None:
        """Wait for this text, and for so many characters."""
        end = time.monotonic() + seconds
        while text not in self.seen or len(self.seen) < size:
            assert time.monotonic() < end, f"{text!r} never came; seen: {self.seen!r}"
            if not self._read(0.2):
                assert text in self.seen, f"ended without {text!r}: {self.seen!r}"

    def press(self, key: str, text: str) -> None:
        """Press a key, again every second, until this text has come: one that comes in the instant between a prompt and
        the reading behind it is noticed at the next one only.
        """
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} never came; seen: {self.seen!r}"
            self.type(key)
            again = time.monotonic() + 1
            while text not in self.seen and time.monotonic() < again:
                assert self._read(0.2), f"ended without {text!r}: {self.seen!r}"

    def prompt(self) -> None:
        """Wait for the prompt: what is typed before it may be lost when the terminal changes its mode."""
        end = time.monotonic() + 50
        while not self.seen.endswith("> "):
            assert time.monotonic() < end, f"no prompt: {self.seen!r}"
            assert self._read(0.2), f"ended without a prompt: {self.seen!r}"

    def wait(self) -> int:
        """The exit status, once the child has ended and everything was read."""
        end = time.monotonic() + 40
        while self._read(0.2):
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                pytest.fail(f"did not end; seen: {self.seen!r}")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> bool:
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


def slow_chat() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # not pytest's

    def slow(tokens: list[int]) -> Any:
        time.sleep(0.01)
        return logits(tokens)

    talk = Conversation(make_engine(model=target(slow)), {**SETTINGS, "max_new_tokens": 400})
    Chat(talk, input, Console(file=sys.stdout), Console(file=sys.stderr), figures=in_words).run()


def test_ctrl_c_stops_the_answer_and_keeps_the_chat_and_ctrl_d_leaves() -> None:
    terminal = Terminal(slow_chat)
    terminal.until("> ")
    terminal.type("hello\n")
    terminal.until("hello\r\n")
    terminal.seen = ""
    terminal.until("", 60, size=4)  # the answer has begun
    terminal.type("\x03")
    terminal.until("stopped; what was written is kept")
    terminal.prompt()
    terminal.type("/figures\n")
    terminal.until("were there already")
    terminal.prompt()
    terminal.press("\x03", "Ctrl-D leaves")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.wait() == 0


@pytest.mark.real
def test_a_real_model_talks_and_remembers(models: Callable[[str], Path]) -> None:
    models("smollm2-135m")

    def body() -> None:
        options = ["--max-new-tokens", "12", "--temperature", "0", "--system", "You are brief."]
        source = str(Path(__file__).parents[1] / "src")
        environment = {**os.environ, "PYTHONPATH": source, "TERM": "dumb"}
        os.execve(sys.executable, [sys.executable, "-m", "outrider.cli", "chat", *options], environment)

    terminal = Terminal(body)
    terminal.until("> ", 240)
    terminal.type("What is a kiln?\n")
    terminal.until("tok/s", 120)
    terminal.prompt()
    terminal.seen = ""
    terminal.type("And a forge?\n")
    terminal.until("tok/s", 120)
    terminal.prompt()
    terminal.type("/figures\n")
    terminal.until("were there already", 120)
    assert re.search(r"[1-9]\d* of them were there already", terminal.seen)
    terminal.prompt()
    terminal.type("/regenerate\n")
    terminal.until("the same again", 60)
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.wait() == 0


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye"])
def test_every_usual_word_leaves(word: str) -> None:
    answers, _ = chat([word, "never asked"])
    assert "never asked" not in answers
