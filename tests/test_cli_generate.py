"""`outrider generate` on a tiny model: what is asked for happens, and the result says so."""

import io
import json

import pytest
import torch

from helpers_cli import PROMPT, outrider
from helpers_models import llama, near_copy, save_model
from outrider.acceptance import available_rules
from outrider.cli import generate as command
from outrider.cli.play import Comparison, tokens_per_second
from outrider.drafters.registry import available_drafters


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("target"), llama(dtype=torch.float32))


@pytest.fixture(scope="module")
def draft_folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("draft"), near_copy(llama(dtype=torch.float32)))


def generate(folder, *words):
    seen = outrider("generate", "--target", folder, "--json", *words)
    assert seen.code == 0, seen.err
    return json.loads(seen.out)


def test_the_text_goes_to_stdout_and_the_figures_to_stderr(folder):
    seen = outrider("generate", "--target", folder, "--max-new-tokens", "12", "--compare", PROMPT)
    result = generate(folder, "--max-new-tokens", "12", PROMPT)
    assert (seen.code, seen.out) == (0, result["text"] + "\n")
    assert "rule identical (lossless), bitwise" in seen.err
    assert "12 tokens in" in seen.err
    assert "tokens equal" in seen.err


@pytest.mark.parametrize("name", [*available_drafters(), "a model's folder"])
def test_cfg_5_the_drafter_named_is_the_one_that_drafts(name, folder, draft_folder):
    specs = {"model": f"model:{draft_folder}", "a model's folder": draft_folder}
    words = ["--drafter", specs.get(name, name), "--policy", "fixed", "--max-new-tokens", "40", "--compare", PROMPT]
    result = generate(folder, *words)
    stats = result["stats"]
    assert stats["method"] == {"none": "plain", "a model's folder": "model"}.get(name, name)
    assert (stats["proposed"] > 0) == (name != "none")
    assert stats["rounds"] - stats["rounds_without_proposal"] > 0 or name == "none"
    assert result["comparison"]["equal"]
    assert result["comparison"]["plain"]["stats"]["proposed"] == 0


@pytest.mark.parametrize("spec", ["lookup:max_ngram=2,min_ngram=2", "model:min_confidence=0.5,model={draft}"])
def test_a_drafters_options_arrive(spec, folder, draft_folder):
    result = generate(
        folder, "--drafter", spec.format(draft=draft_folder), "--policy", "fixed", "--max-new-tokens", "30", PROMPT
    )
    assert result["stats"]["method"] == spec.partition(":")[0]


@pytest.mark.parametrize("rule", available_rules())
def test_the_rule_named_is_the_one_that_decides(rule, folder):
    stats = generate(folder, "--rule", rule, "--max-new-tokens", "10", "--temperature", "0", PROMPT)["stats"]
    assert (stats["rule"], stats["lossless"]) == (rule, rule != "typical")


@pytest.mark.parametrize("policy", [[], ["--policy", "auto"], ["--policy", "fixed"]])
@pytest.mark.parametrize("depth", [0, 1, 5])
def test_cfg_1_the_depth_typed_is_the_depth_used(depth, policy, folder):
    result = generate(folder, "--max-depth", str(depth), *policy, "--max-new-tokens", "40", PROMPT)
    assert result["stats"]["max_proposed"] == depth
    assert result["effective_params"]["max_depth"] == depth
    assert ("max_depth is 0" in (result["stats"]["off_reason"] or "")) == (depth == 0)


def test_settings_take_effect_and_are_shown(folder):
    words = ["--temperature", "1.5", "--seed", "7", "--max-new-tokens", "20"]
    first, again = (generate(folder, *words, "--banned-token-ids", "1,2,3", PROMPT) for _ in range(2))
    assert first["token_ids"] == again["token_ids"]
    assert not {1, 2, 3} & set(first["token_ids"])
    assert first["token_ids"] != generate(folder, *words[:2], "--seed", "8", *words[4:], PROMPT)["token_ids"]
    shown = outrider("generate", "--target", folder, *words, "--show-params", PROMPT).err
    assert "temperature=1.5  top_k=0" in shown
    assert "seed=7" in shown


def test_stops_logprobs_and_processors(folder):
    stopped = generate(folder, "--max-new-tokens", "30", "--stop", "w", PROMPT)
    assert (stopped["finish_reason"], stopped["stop_match"], stopped["text"]) == ("stop", "w", "")
    reports = generate(folder, "--max-new-tokens", "3", "--logprobs", "2", PROMPT)["logprobs"]
    assert [len(report["top"]) for report in reports] == [2, 2, 2]
    always = generate(folder, "--max-new-tokens", "5", "--logits-processors", f"{__name__}:only_seven", PROMPT)
    assert always["token_ids"] == [7] * 5
    assert always["effective_params"]["logits_processors"] == ["only_seven"]


def only_seven(tokens, logits):
    return torch.full_like(logits, float("-inf")).index_fill(0, torch.tensor([7]), 0.0)


def test_the_prompt_may_come_from_a_file_or_stdin(folder, tmp_path, monkeypatch):
    direct = generate(folder, "--max-new-tokens", "5", PROMPT)
    (tmp_path / "prompt.txt").write_text(PROMPT)
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    ways = [["--file", str(tmp_path / "prompt.txt")], ["-"]]
    for way in ways:
        assert generate(folder, "--max-new-tokens", "5", *way)["token_ids"] == direct["token_ids"]


def test_chat_needs_a_template_and_says_so(folder):
    assert "no chat template" in outrider("generate", "--target", folder, "--chat", "w1").error


def test_dtype_and_exactness_reach_the_target(folder):
    words = ["--max-new-tokens", "5", "--dtype", "float64", "--exact", "near-tie", PROMPT]
    assert generate(folder, *words)["stats"]["exact"] == "near-tie"


def test_compare_fails_where_the_tokens_differ(folder, monkeypatch):
    """A negative control: the plain run is made to differ."""
    honest = command.compare

    def lying(engine, prompt, sampling, speculative):
        return honest(engine, prompt, {**sampling, "banned_token_ids": [speculative.token_ids[3]]}, speculative)

    monkeypatch.setattr(command, "compare", lying)
    seen = outrider("generate", "--target", folder, "--max-new-tokens", "12", "--compare", PROMPT)
    assert seen.code == 1
    assert "tokens DIFFER from number" in seen.err
    assert ": a defect" in seen.err
    assert "x)" not in seen.err  # no speed-up beside different tokens


def test_figures_add_up(folder):
    import outrider as library

    engine = library.load(folder, "lookup")
    run = [engine.generate(PROMPT, max_new_tokens=12, max_depth=depth) for depth in (5, 0)]
    both = Comparison(*run)
    assert (both.equal, both.first_difference, both.must_be_equal) == (True, None, True)
    assert both.speed_up == tokens_per_second(run[0]) / tokens_per_second(run[1])
    shorter = Comparison(run[0], engine.generate(PROMPT, max_new_tokens=11, max_depth=0))
    assert (shorter.equal, shorter.first_difference, shorter.speed_up) == (False, 11, None)
