"""The benchmark: figures that add up, and no speed-up where the texts differ."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import outrider.cli.bench as command
from outrider.bench.equality import Arbiter, Equality
from outrider.bench.growth import pass_seconds
from outrider.bench.report import Report
from outrider.bench.runner import run_bench
from outrider.bench.runs import Run, System, Timing, measure
from outrider.bench.setup import Bench
from outrider.bench.store import restore_runs, save_runs
from outrider.bench.summary import figures, ratio, ratio_pairs, rests_on, text_pairs, why
from outrider.bench.systems import Ours, Transformers
from outrider.certify.probe import Measured
from outrider.cli.main import run as run_command
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.prompts import TestPrompt
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.types import PhaseSeconds

VOCAB = 8
PROMPTS = [TestPrompt("a", "one", [1, 2, 3]), TestPrompt("b", "two", [4])]


def counting(tokens: list[int]) -> Tensor:
    """The next id is one higher, around the circle."""
    return torch.nn.functional.one_hot(torch.tensor((tokens[-1] + 1) % VOCAB), VOCAB).double() * 5


def right(tokens: list[int], max_depth: int) -> list[int]:
    return [(tokens[-1] + 1 + i) % VOCAB for i in range(max_depth)]


class Scripted:
    """A system whose texts and times are given."""

    def __init__(self, name: str, family: str, method: str, text: tuple[int, ...], seconds: float = 1.0) -> None:
        self.name, self.family, self.method = name, family, method
        self.text, self.seconds, self.asked = text, seconds, list[list[int]]()

    def run(self, prompt: Any, max_new_tokens: int) -> Timing:
        self.asked.append(list(prompt))
        text = self.text[:max_new_tokens]
        return Timing(text, self.seconds + 0.5, 0.5, len(text), 2, 6, 3, PhaseSeconds(0.5, 0.1, self.seconds - 0.1))


def scripted(*speeds: float, texts: tuple[tuple[int, ...], ...] | None = None) -> list[System]:
    """plain, lookup of ours; plain, lookup of transformers."""
    names = [("outrider", "plain"), ("outrider", "lookup"), ("transformers", "plain"), ("transformers", "lookup")]
    texts = texts or ((1, 2, 3, 4),) * 4
    return [
        Scripted(f"{family} {method}", family, method, text, 4 / speed)
        for (family, method), text, speed in zip(names, texts, speeds, strict=True)
    ]


def runs_of(systems: list[System], repeats: int = 2) -> list[Run]:
    encoded = [(prompt, prompt.encode(None)) for prompt in PROMPTS]
    return list(measure(systems, encoded, 4, repeats))


def test_systems_take_turns_on_every_prompt_and_are_warmed_up() -> None:
    systems = scripted(1, 1, 1, 1)
    runs = runs_of(systems, repeats=2)
    assert len(runs) == 4 * 2 * 2
    firsts = [runs[i].system for i in range(0, len(runs), 4)]
    assert len(set(firsts)) == 4, "whoever goes first changes"
    assert [run.prompt_id for run in runs[:4]] == ["a"] * 4
    assert systems[0].asked[0] == [1, 2, 3]  # pyright: ignore
    assert len(systems[0].asked) == 1 + 4  # pyright: ignore


def test_figures_are_sums_and_medians() -> None:
    one = figures("outrider plain", runs_of(scripted(2.0, 1, 1, 1)))
    assert one.rate == pytest.approx(2.0)
    assert one.rate_range == pytest.approx((2.0, 2.0))
    assert one.overall_rate == pytest.approx(4 / 2.5)
    assert (one.tokens, one.rounds, one.tokens_per_round, one.acceptance) == (16, 8, 2.0, 0.5)
    assert one.phases is not None
    assert sum(one.phases.values()) == pytest.approx(4 * 2.0)


def test_ratios_compare_the_same_prompt_in_the_same_repeat() -> None:
    systems = scripted(2.0, 3.0, 1.0, 1.5)
    runs = runs_of(systems)
    found = {(one.name, other.name): ratio(one.name, other.name, runs, []).value for one, other in ratio_pairs(systems)}
    assert found == pytest.approx(
        {
            ("outrider lookup", "outrider plain"): 1.5,
            ("transformers lookup", "transformers plain"): 1.5,
            ("outrider plain", "transformers plain"): 2.0,
            ("outrider lookup", "transformers plain"): 3.0,
            ("outrider lookup", "transformers lookup"): 2.0,
        }
    )


def test_the_range_is_over_repeats() -> None:
    runs = [replace_rate(run, 2.0 if run.repeat else 1.0) for run in runs_of(scripted(1, 1, 1, 1))]
    one = ratio("outrider lookup", "outrider plain", runs, [])
    assert (one.value, one.range) == (pytest.approx(1.5), pytest.approx((1.0, 2.0)))


def replace_rate(run: Run, factor: float) -> Run:
    if run.system != "outrider lookup":
        return run
    spent = (run.timing.seconds - run.timing.prefill) / factor
    return replace(run, timing=replace(run.timing, seconds=run.timing.prefill + spent))


def test_spd3_slower_is_said_to_be_slower_and_why() -> None:
    runs = runs_of(scripted(2.0, 1.0, 1, 1))
    said = why(figures("outrider plain", runs), figures("outrider lookup", runs), 0.5)
    assert said.startswith("outrider lookup: 0.50x, slower than plain: a round yields 2.00 tokens and costs 2.00")
    assert "overhead" in said


# ---- KVR-6: no speed-up beside other texts


def arbiter_on(next_logits: Any = counting, **claims: Any) -> Arbiter:
    target = FunctionTarget(next_logits, VOCAB)
    target.info = replace(target.info, **claims)
    return Arbiter(target)


def equality_of(texts: tuple[tuple[int, ...], ...], arbiter: Arbiter) -> Equality:
    systems = scripted(1, 1, 1, 1, texts=texts)
    prompts = {prompt.id: prompt.encode(None) for prompt in PROMPTS}
    return arbiter.compare(systems[1], systems[0], runs_of(systems), prompts)


def test_equal_texts_are_counted() -> None:
    found = equality_of(((5, 6, 7),) * 4, arbiter_on())
    assert (found.equal, found.near_ties, found.not_explained, found.sound) == (2, 0, 0, True)


def test_kvr6_a_text_that_differs_withholds_the_ratio() -> None:
    systems = scripted(1, 9, 1, 1, texts=((4, 5, 6), (4, 5, 7), (4, 5, 6), (4, 5, 6)))  # the law says 6
    runs = runs_of(systems)
    prompts = {prompt.id: prompt.encode(None) for prompt in PROMPTS}
    arbiter = arbiter_on(exact="near-tie")
    equalities = [arbiter.compare(systems[1], systems[0], runs, prompts)]
    assert not equalities[0].sound
    withheld = ratio("outrider lookup", "outrider plain", runs, rests_on(systems[1], systems[0], equalities))
    assert withheld.value is None
    assert "differs from outrider plain: a: token 2, gap" in withheld.withheld


def test_no_difference_is_allowed_where_bitwise_is_claimed() -> None:
    tie = lambda tokens: torch.zeros(VOCAB)  # noqa: E731
    found = equality_of(((1, 2), (1, 3), (1, 2), (1, 2)), arbiter_on(tie))
    assert found.not_explained == 2
    assert equality_of(((1, 2), (1, 3), (1, 2), (1, 2)), arbiter_on(tie, exact="near-tie")).near_ties == 2


def test_another_length_is_never_a_near_tie() -> None:
    found = equality_of(((1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3)), arbiter_on(exact="near-tie"))
    assert (found.not_explained, "ends at token 2" in found.worst) == (2, True)


def test_a_text_that_changes_between_repeats_counts() -> None:
    systems = scripted(1, 1, 1, 1)
    runs = [
        replace(run, timing=replace(run.timing, token_ids=(9, 9)))
        if run.repeat and run.system == "outrider lookup"
        else run
        for run in runs_of(systems)
    ]
    prompts = {prompt.id: prompt.encode(None) for prompt in PROMPTS}
    assert arbiter_on().compare(systems[1], systems[0], runs, prompts).not_explained == 2


def test_a_ratio_across_families_rests_on_the_plain_texts_too() -> None:
    systems = scripted(1, 1, 1, 1)
    pairs = [(one.name, other.name) for one, other in text_pairs(systems)]
    equalities = [
        Equality(one, other, 2, 0, 0, joins_families=one.split()[0] != other.split()[0]) for one, other in pairs
    ]
    rests = [(e.system, e.reference) for e in rests_on(systems[1], systems[3], equalities)]
    assert rests == pairs
    assert [e.system for e in rests_on(systems[1], systems[0], equalities)] == ["outrider lookup"]


# ---- real systems


def toy_bench() -> Bench:
    target = FunctionTarget(counting, VOCAB)
    drafting = Engine(target, FunctionDrafter(right))
    return Bench(
        target, None, [Ours("outrider plain", "plain", Engine(target), 0), Ours("outrider f", "f", drafting, 3)]
    )


def test_a_whole_benchmark_on_a_toy() -> None:
    report = run_bench(toy_bench(), PROMPTS, max_new_tokens=12, repeats=2)
    plain, drafted = report.figures
    assert (plain.tokens_per_round, drafted.tokens_per_round) == (1.0, 4.0)
    assert drafted.acceptance == 1.0
    assert report.sound
    assert report.ratios[0].value is not None
    assert report.reasons[0].startswith("outrider f:")
    assert set(report.growth) == {1, 2, 4, 8, 16}
    assert len(report.to_dict(runs=True)["runs"]) == 2 * 2 * 2


def test_an_interrupt_keeps_what_every_system_has_run() -> None:
    seen = []

    def stop(run: Run) -> None:
        seen.append(run)
        if len(seen) == 4:
            raise KeyboardInterrupt

    report = run_bench(toy_bench(), PROMPTS, max_new_tokens=8, repeats=2, on_run=stop)
    assert not report.complete
    assert {run.prompt_id for run in report.runs} == {"a"}
    assert json.dumps(report.to_dict(runs=False))


def test_growth_leaves_the_target_as_it_was() -> None:
    target = FunctionTarget(counting, VOCAB, max_length=12)
    assert set(pass_seconds(target, [1, 2, 3])) == {1, 2, 4, 8}
    assert target.length(0) == 0


@pytest.mark.parametrize("values", [{"repeats": 0, "max_new_tokens": 4}, {"repeats": 1, "max_new_tokens": 0}])
def test_bad_numbers_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="must be at least 1"):
        run_bench(toy_bench(), PROMPTS, **values)


def tiny_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.5,
        eos_token_id=None,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config).to(torch.float64).eval()


def test_transformers_modes_on_the_same_weights() -> None:
    from outrider.drafters.lookup import LookupDrafter
    from outrider.drafters.model import ModelDrafter
    from outrider.targets.hf.target import HFTarget

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model, draft = tiny_llama(), tiny_llama()
    target = HFTarget(model, max_rows=1)
    systems: list[System] = [
        Ours("outrider plain", "plain", Engine(target), 0),
        Ours("outrider lookup", "lookup", Engine(target, LookupDrafter()), 4),
        Ours("outrider draft", "model", Engine(target, ModelDrafter(HFTarget(draft, max_rows=1))), 4),
        Transformers("transformers plain", "plain", model, ()),
        Transformers("transformers prompt lookup", "lookup", model, (), {"prompt_lookup_num_tokens": 4}),
        Transformers("transformers assisted", "model", model, (), assistant=draft),
    ]
    prompts = [TestPrompt("a", "one", [5, 6, 7, 5, 6, 7, 5])]
    report = run_bench(Bench(target, model, systems), prompts, max_new_tokens=12, repeats=1)
    torch.set_num_threads(threads)
    by_name = {one.system: one for one in report.figures}
    assert report.sound, report.equalities
    assert all(equality.equal == 1 for equality in report.equalities)
    assert by_name["transformers plain"].tokens_per_round == pytest.approx(1.0)
    timings = {run.system: run.timing for run in report.runs}
    assert timings["transformers plain"].decoded == 11
    assert 0 < timings["transformers assisted"].prefill < timings["transformers assisted"].seconds
    assert timings["transformers assisted"].decoded < 11, "the first pass brought several"
    assert by_name["transformers assisted"].tokens_per_round > 1.5
    assert by_name["outrider draft"].tokens_per_round > 3
    assert {(r.system, r.reference) for r in report.ratios} >= {
        ("outrider lookup", "transformers prompt lookup"),
        ("outrider draft", "transformers assisted"),
        ("outrider plain", "transformers plain"),
    }


def test_across_families_the_measured_distance_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that transformers would never write is not explained; logits that lie apart explain what they can."""
    from outrider.targets.hf.target import HFTarget

    model = tiny_llama()
    target = HFTarget(model, max_rows=1)
    text = Engine(target).generate([5, 6, 7], max_new_tokens=6).token_ids
    other = (*text[:4], (text[4] + 1) % 40)
    systems: list[System] = [Scripted("outrider plain", "outrider", "plain", text)]
    systems.append(Scripted("transformers plain", "transformers", "plain", (*other, text[5])))
    encoded = {"a": [5, 6, 7]}
    runs = list(measure(systems, [(TestPrompt("a", "one", [5, 6, 7]), [5, 6, 7])], 6, 1))
    arbiter = Arbiter(target, model)
    assert arbiter.compare(systems[0], systems[1], runs, encoded).not_explained == 1
    whole, stepwise = arbiter._their_logits([5, 6, 7, *text[:4]], 3)
    assert torch.allclose(whole, stepwise, atol=1e-9)
    assert int(whole.argmax()) == text[4]
    near = whole.clone()
    near[other[4]] = near.max() - 1e-13
    monkeypatch.setattr(arbiter._probe, "measure", lambda *_: Measured(near, 0.0, 1e-9))
    monkeypatch.setattr(arbiter, "_their_logits", lambda *_: [near + 1e-13 * torch.arange(40)])
    assert arbiter.compare(systems[0], systems[1], runs, encoded).near_ties == 1


# ---- the command


@pytest.fixture
def prompt_file(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"id": p.id, "token_ids": p.prompt}) for p in PROMPTS))
    return str(path)


def test_the_commands_last_line_is_json(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "set_up", lambda *_, **__: toy_bench())
    out = tmp_path / "b.json"
    args = ["bench", "--suite", prompt_file, "--max-new-tokens", "6", "--repeats", "1", "--json", str(out)]
    assert run_command(args) == 0
    shown = capsys.readouterr().out.strip().splitlines()
    last = json.loads(shown[-1])
    assert last["sound"] is True
    assert last["settings"]["prompts"] == 2
    assert "runs" not in last
    assert len(json.loads(out.read_text())["runs"]) == 4


def test_the_command_fails_where_texts_differ(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def unequal(*_: Any, **__: Any) -> Bench:
        ready = toy_bench()
        return replace(ready, systems=[ready.systems[0], Scripted("outrider bad", "outrider", "bad", (0, 0, 0), 0.01)])

    monkeypatch.setattr(command, "set_up", unequal)
    assert run_command(["bench", "--suite", prompt_file, "--max-new-tokens", "6", "--repeats", "1"]) == 1
    shown = capsys.readouterr().out
    assert "none: outrider bad differs" in shown
    assert json.loads(shown.strip().splitlines()[-1])["ratios"][0]["value"] is None


@pytest.mark.parametrize(
    "args", [["--threads", "0"], ["--threads", "9999"], ["--max-depth", "0"], ["--suite", "/no"], ["--kinds", "x"]]
)
def test_bad_command_lines_exit_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", *args]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_reports_say_what_is_missing() -> None:
    assert Report({}, {}, {}, [], [], [], [], []).sound


def test_a_third_family_is_judged_by_its_own_logits() -> None:
    """llama.cpp's plain text may differ from ours by as much as its logits lie apart there, and no more."""
    near = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0 - 2e-14], dtype=torch.float64)
    target = FunctionTarget(lambda tokens: near if tokens[-1] == 2 else counting(tokens)[:5], 5)
    texts = {"outrider plain": ("outrider", (1, 2, 3)), "llama.cpp plain": ("llama.cpp", (1, 2, 4))}
    systems: list[System] = [Scripted(name, family, "plain", text) for name, (family, text) in texts.items()]
    runs = list(measure(systems, [(TestPrompt("a", "one", [0]), [0])], 3, 1))
    padding = torch.tensor([9.0], dtype=torch.float64)  # cut off: the vocabulary ends before it
    other_way = torch.cat([near[:3], near[[4, 3]], padding])
    for logits, unexplained in ((torch.cat([near, padding]), 1), (other_way, 0)):
        arbiter = Arbiter(target, None, {"llama.cpp": lambda *_, found=logits: [found]})
        assert arbiter.compare(systems[0], systems[1], runs, {"a": [0]}).not_explained == unexplained
    assert ratio_pairs(systems) == [(systems[0], systems[1])]
    joined = Equality("outrider plain", "llama.cpp plain", 0, 0, 1, "", True, "llama.cpp")
    other = Equality("outrider plain", "transformers plain", 1, 0, 0, "", True, "transformers")
    assert rests_on(systems[0], systems[1], [joined, other]) == [joined]


def test_other_weights_are_told_and_counted_and_never_blamed() -> None:
    systems = scripted(2, 3, 1, 1, texts=((1, 2), (1, 2), (1, 3), (1, 3)))
    runs, prompts = runs_of(systems), {prompt.id: prompt.encode(None) for prompt in PROMPTS}
    arbiter = Arbiter(FunctionTarget(counting, VOCAB), other_weights={"transformers"})
    equalities = [arbiter.compare(one, other, runs, prompts) for one, other in text_pairs(systems)]
    across = equalities[-1]
    assert (across.equal, across.not_explained, across.other_weights, across.sound) == (0, 0, True, True)
    assert "2 of 2 texts differ" in across.worst
    told = ratio(systems[1].name, systems[2].name, runs, rests_on(systems[1], systems[2], equalities))
    assert (told.value, told.note) == (pytest.approx(3.0), "other weights")
    own = ratio(systems[1].name, systems[0].name, runs, rests_on(systems[1], systems[0], equalities))
    assert own.note == ""
    bad = scripted(2, 3, 1, 1, texts=((1, 2), (1, 5), (1, 3), (1, 3)))  # our own texts are judged as ever
    assert arbiter.compare(bad[1], bad[0], runs_of(bad), prompts).not_explained == 2


def test_an_int8_target_is_compared_with_itself_and_with_others_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers_hf import tiny
    from outrider.bench.setup import set_up
    from outrider.kernels import available
    from test_hf_loader import word_tokenizer

    if not available()[0]:
        pytest.skip(available()[1])
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    folder = str(tmp_path / "model")
    tiny("qwen2", torch.bfloat16).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    ready = set_up(folder, ["lookup"], quantize="int8", policy="auto")
    assert ready.target.info.quantize == "int8"
    assert ready.other_weights == {"transformers"}
    prompts = [TestPrompt("a", "one", [5, 6, 7, 5, 6, 7, 5])]
    report = run_bench(ready, prompts, max_new_tokens=8, repeats=1)
    assert report.sound
    assert [e.other_weights for e in report.equalities] == [False, False, True]
    assert report.equalities[0].equal == 1
    assert report.settings["quantize"] == "int8"
    with pytest.raises(OptionError, match="exclude each other"):
        set_up(folder, ["lookup"], quantize="int8", dtype="bfloat16")


def test_a_benchmark_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path, settings = tmp_path / "b.json", {"target": "t", "kinds": None}
    runs = run_bench(toy_bench(), PROMPTS, max_new_tokens=4, repeats=1).runs
    assert restore_runs(path, settings) == []
    save_runs(path, settings, runs[:3])  # "b" was run by one of the two systems
    earlier, again = restore_runs(path, settings), list[Run]()
    assert earlier == list(runs[:3])
    report = run_bench(
        toy_bench(), PROMPTS, max_new_tokens=4, repeats=1, earlier=earlier, on_run=again.append, settings=settings
    )
    assert [run.prompt_id for run in again] == ["b", "b"]
    assert sorted((run.prompt_id, run.system) for run in report.runs) == sorted((r.prompt_id, r.system) for r in runs)
    with pytest.raises(OptionError, match="run with target 't', not 'u'"):
        restore_runs(path, {"target": "u"})
    path.write_text("[]")
    with pytest.raises(OptionError, match="no benchmark to go on with"):
        restore_runs(path, settings)


def test_the_command_keeps_runs_as_it_goes_and_resumes(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "set_up", lambda *_, **__: toy_bench())
    out, saved = tmp_path / "b.json", list[int]()
    monkeypatch.setattr(command, "save_runs", lambda path, settings, runs: saved.append(len(runs)))
    args = ["bench", "--suite", prompt_file, "--max-new-tokens", "6", "--repeats", "1", "--json", str(out), "--resume"]
    assert run_command(args) == 0
    assert saved == [2, 4]
    assert run_command(args) == 0
    assert saved == [2, 4], "everything was there"
    assert run_command([*args, "--max-depth", "2"]) == 2
    assert "max_depth" in capsys.readouterr().err
    assert run_command(["bench", "--resume"]) == 2


def test_peers_are_named_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", "--against", "lama.cpp"]) == 2
    assert "did you mean 'llama.cpp'" in capsys.readouterr().err


def test_an_absent_peer_is_noted_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from outrider.bench import setup
    from outrider.targets.llamacpp import library

    monkeypatch.setattr(library, "missing", lambda: "llama-cpp-python is not installed")
    peers, notes = setup._llamacpp("smollm2-135m", [])
    assert peers == []
    assert notes == ("not compared with llama.cpp: llama-cpp-python is not installed",)
