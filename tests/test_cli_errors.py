"""Whatever is wrong with a command line ends in one clear line on stderr, an exit code, and no traceback."""

import signal
import subprocess
import sys

import pytest

from helpers_cli import PROMPT, outrider
from helpers_models import llama, save_model
from outrider.engine.engine import Engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"), llama())


USAGE = {
    "no prompt": ([], "give one prompt"),
    "two prompts": (["w1", "--file", "x"], "give one prompt"),
    "empty prompt": ([""], "the prompt is empty"),
    "misspelt option": (["w1", "--temprature", "1"], "no option --temprature; did you mean --temperature?"),
    "misspelt rule": (["w1", "--rule", "identcal"], "did you mean 'identical'"),
    "misspelt drafter": (["w1", "--drafter", "lokup"], "did you mean 'lookup'"),
    "misspelt drafter option": (["w1", "--drafter", "lookup:max_ngrm=3"], "did you mean 'max_ngram'"),
    "drafter option of the wrong kind": (["w1", "--drafter", "lookup:max_ngram=x"], "max_ngram"),
    "negative depth": (["w1", "--max-depth", "-1"], "max_depth must be an integer from 0, not -1"),
    "half a depth": (["w1", "--max-depth", "1.5"], "max_depth must be an integer from 0, not '1.5'"),
    "no number": (["w1", "--temperature", "warm"], "temperature must be a finite number from 0, not 'warm'"),
    "not a number": (["w1", "--top-p", "nan"], "top_p must be"),
    "unknown exactness": (["w1", "--exact", "roughly"], "'roughly' is not one of 'bitwise', 'near-tie'"),
    "unknown policy": (["w1", "--policy", "bold"], "'bold' is not one of 'auto', 'fixed'"),
    "unknown dtype": (["w1", "--dtype", "bfloat17"], "bfloat16"),
    "option without value": (["w1", "--top-k"], "requires an argument"),
    "logprobs without json": (["w1", "--logprobs", "2"], "--json"),
    "length that is none": (["w1", "--max-length", "many"], "max_length"),
}


@pytest.mark.parametrize("case", USAGE)
def test_a_wrong_command_line_is_told_in_one_line(folder, case):
    words, message = USAGE[case]
    seen = outrider("generate", "--target", folder, *words)
    assert (seen.code, seen.out) == (2, "")
    assert message in seen.error


def test_unknown_commands_get_a_hint():
    assert "Did you mean 'generate'" in outrider("genrate", "x").error
    assert "did you mean 'smollm2-135m'" in outrider("models", "pull", "smolm2-135m").error
    assert outrider().code == 0  # the help
    assert outrider("models", "list").code == 0


def test_wrong_paths_and_broken_files_are_told_in_one_line(folder, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    empty = tmp_path / "empty"
    empty.mkdir()
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Käse".encode("latin-1"))
    for words, message in [
        (["w1", "--target", str(broken)], "not a GGUF file"),
        (["w1", "--target", str(empty)], "no config.json"),
        (["w1", "--target", str(tmp_path / "nowhere")], "no model"),
        (["w1", "--target", folder, "--drafter", str(broken)], "not a GGUF file"),
        (["--file", str(tmp_path / "no.txt"), "--target", folder], "cannot open"),
        (["--file", str(latin), "--target", folder], "not UTF-8"),
    ]:
        seen = outrider("generate", *words)
        assert (message in seen.error, seen.out) == (True, ""), seen


def test_a_prompt_too_long_names_both_lengths(folder):
    seen = outrider("generate", "--target", folder, "--max-length", "16", PROMPT)
    assert seen.code == 2
    assert "30 tokens" in seen.error
    assert "16" in seen.error


def test_a_draft_model_of_another_vocabulary_is_refused(folder, tmp_path):
    other = save_model(tmp_path, llama(), words=7)
    inner = (tmp_path / "tokenizer.json").read_text().replace('"w3"', '"x3"')
    (tmp_path / "tokenizer.json").write_text(inner)
    seen = outrider("generate", "--target", folder, "--drafter", f"model:{other},bridge=none", "w1")
    assert "'x3' against 'w3'" in seen.error


def test_an_interrupt_ends_with_130_and_no_traceback(folder, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "step", interrupted)
    seen = outrider("generate", "--target", folder, PROMPT)
    assert (seen.code, seen.err) == (130, "")


def test_a_fault_of_ours_is_not_hidden(folder, monkeypatch):
    monkeypatch.setattr(Engine, "step", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        outrider("generate", "--target", folder, PROMPT)


def test_ctrl_c_in_a_process_of_its_own(folder):
    for _ in range(5):  # on a busy machine the text may be finished before the signal comes
        code, said = interrupted(
            ["generate", "--target", folder, "--max-new-tokens", "450", "--drafter", "none", PROMPT]
        )
        if code != 0:
            break
    assert (code, "Traceback" in said) == (130, False)


def interrupted(words: list[str]) -> tuple[int, str]:
    """Exit code and output of a command that gets Ctrl-C once it has begun to write."""
    process = subprocess.Popen(
        [sys.executable, "-m", "outrider.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a suite in the background ignores
    )
    assert process.stdout is not None
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert first
    return process.returncode, out + err


def test_what_is_no_text_and_no_schema_gets_one_line(folder, tmp_path):
    (tmp_path / "null.json").write_text("null")
    for words, message in [
        (["\udcff"], "no Unicode text"),
        (["w1", "--json-schema", str(tmp_path / "null.json")], "--json-schema is None; it must be an object"),
        (["w1", "--json-schema", "[1]"], "--json-schema is [1]; it must be an object"),
        (["w1", "--target", "~nosuchuser/m"], "no model '~nosuchuser/m'"),
    ]:
        seen = outrider("generate", "--target", folder, *words)
        assert (message in seen.error, seen.out) == (True, ""), seen


def test_the_version_is_said_either_way():
    assert outrider("--version").out == outrider("version").out != ""
