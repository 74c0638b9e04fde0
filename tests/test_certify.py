"""The certificate: it must say yes to what is equal, explain near ties, and above all be able to say no."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import outrider.cli.certify as command
from outrider.acceptance import make_rule
from outrider.certify import Certificate, Grid, certify
from outrider.certify.grid import comparable
from outrider.certify.judge import first_difference
from outrider.certify.store import restore, save
from outrider.cli.main import run
from outrider.engine.engine import Engine
from outrider.errors import OptionError, PromptError
from outrider.prompts import TestPrompt, load_prompts
from outrider.targets.base import TargetInfo
from outrider.testing import FunctionDrafter, FunctionTarget
from outrider.types import Packed, Scored

VOCAB = 12
PROMPTS = [TestPrompt("a", "one", [1, 2, 3]), TestPrompt("b", "two", [4]), TestPrompt("c", "two", [5, 5, 1, 5])]


def laws(tokens: list[int]) -> Tensor:
    """Laws that depend on the last three tokens and the length."""
    return table_law(tuple(tokens[-3:]), len(tokens) % 7)


@cache
def table_law(tail: tuple[int, ...], phase: int) -> Tensor:
    generator = torch.Generator().manual_seed(hash((tail, phase)) % (1 << 30))
    return torch.randn(VOCAB, generator=generator, dtype=torch.float64) * 2


def half_right(tokens: list[int], max_depth: int) -> list[int]:
    """The target's greedy continuation, wrong at every third place."""
    drafted: list[int] = []
    for _ in range(max_depth):
        best = int(laws([*tokens, *drafted]).argmax())
        drafted.append(best if (len(tokens) + len(drafted)) % 3 else (best + 1) % VOCAB)
    return drafted


class ShiftedTarget(FunctionTarget):
    """A target whose logits depend on how many nodes share the pass: the fault that certify is for."""

    shift: Callable[[Tensor, int], Tensor] = staticmethod(lambda logits, nodes: logits)

    def score(self, packed: Packed, want: Tensor | None = None, hidden_layers: Any = ()) -> Scored:
        scored = super().score(packed, want, hidden_layers)
        return Scored(self.shift(scored.logits, packed.num_nodes))

    def claims(self, **changes: Any) -> "ShiftedTarget":
        self.info: TargetInfo = replace(self.info, **changes)
        return self


def shifted(shift: Callable[[Tensor, int], Tensor], next_logits: Any = laws, **claims: Any) -> ShiftedTarget:
    target = ShiftedTarget(next_logits, VOCAB, max_rows=4)
    target.shift = shift
    return target.claims(**claims)


def engine_of(target: FunctionTarget, drafter: Any = half_right, rule: str = "identical") -> Engine:
    return Engine(target, FunctionDrafter(drafter), rule=rule)


def certificate_of(target: FunctionTarget, grid: Grid | None = None, **options: Any) -> Certificate:
    """Batches of one, so that a plain pass has one node."""
    return certify(engine_of(target), PROMPTS, grid or Grid(max_new_tokens=16, depths=(1, 4), batch=1), **options)


def near_tied(tokens: list[int]) -> Tensor:
    """Two tokens whose logits differ by 1e-6; their order depends on nothing."""
    logits = torch.zeros(VOCAB, dtype=torch.float64)
    logits[3], logits[7] = 10.0, 10.0 - 1e-6
    return logits


def wobble(logits: Tensor, nodes: int) -> Tensor:
    """Rounding as float32 has it: wide passes move token 7 by two units in the last place."""
    moved = logits.clone()
    moved[:, 7] += 0.0 if nodes == 1 else 4e-6
    return moved


# ---- yes


def test_equal_runs_are_certified_under_every_setting() -> None:
    grid = Grid(temperatures=(0.0, 0.8), seeds=2, depths=(1, 4), max_new_tokens=16, batch=2)
    certificate = certify(engine_of(FunctionTarget(laws, VOCAB)), PROMPTS, grid, options={"logprobs": 2})
    assert certificate.passed
    assert certificate.num_jobs == len(certificate.results) == 3 * 2 * (1 + 2)
    assert certificate.count("equal") == 18
    assert certificate.num_tokens == 18 * 16
    assert sum(result.accepted for result in certificate.results) > 0
    assert certificate.noise["largest"] == 0.0
    assert certificate.floor is not None
    assert certificate.floor.different == 0


def test_gre4_defaults_of_the_model_hold_on_both_sides_and_are_shown() -> None:
    target = shifted(lambda logits, nodes: logits, generation_defaults={"repetition_penalty": 1.3, "do_sample": True})
    certificate = certificate_of(target)
    assert certificate.passed
    assert {result.effective_params["repetition_penalty"] for result in certificate.results} == {1.3}


def test_gre6_prompt_tokens_are_in_the_result() -> None:
    certificate = certificate_of(FunctionTarget(laws, VOCAB))
    assert [result.prompt_token_ids for result in certificate.results[:1]] == [[1, 2, 3]]


# ---- no


def test_a_target_whose_logits_depend_on_the_pass_fails_though_it_claims_bitwise() -> None:
    certificate = certificate_of(shifted(lambda logits, nodes: logits.roll(1, -1) if nodes > 3 else logits))
    assert not certificate.passed
    assert certificate.count("NOT EXPLAINED") > 0
    assert "moved by" in certificate.faults[0]


def test_a_bitwise_claim_forbids_even_a_near_tie() -> None:
    certificate = certificate_of(shifted(wobble, near_tied))
    assert certificate.count("NOT EXPLAINED") > 0
    assert "claims bitwise" in certificate.results[0].difference.reason


def test_num2_a_near_tie_is_explained_by_the_measured_noise() -> None:
    certificate = certificate_of(shifted(wobble, near_tied, exact="near-tie", dtype=torch.float32))
    assert certificate.passed, certificate.results
    difference = next(result.difference for result in certificate.results if result.difference)
    assert (difference.what, difference.verdict, difference.position) == ("token", "near tie", 0)
    assert {difference.plain, difference.speculative} == {3, 7}
    assert difference.gap == pytest.approx(1e-6)
    assert difference.noise == pytest.approx(4e-6)


def test_a_token_at_the_edge_of_what_is_cut_off_is_a_near_tie() -> None:
    """top_k=1 leaves either of two tokens, as the pass rounds; a real change of the law is no edge."""
    grid, options = Grid((0.9,), max_new_tokens=8, batch=1), {"top_k": 1}
    tied = shifted(wobble, near_tied, exact="near-tie", dtype=torch.float32)
    certificate = certificate_of(tied, grid, options=options)
    assert certificate.passed, certificate.results
    assert "cuts off" in next(r.difference.reason for r in certificate.results if r.difference)
    changed = shifted(lambda logits, nodes: logits.roll(1, -1) if nodes > 1 else logits, exact="near-tie")
    assert not certificate_of(changed, grid, options=options).passed


def test_noise_that_no_rounding_makes_explains_nothing() -> None:
    """The whole effect is there when it is measured; that must not make it an excuse."""
    target = shifted(lambda logits, nodes: logits.roll(1, -1) if nodes > 1 else logits, exact="near-tie")
    certificate = certificate_of(target)
    assert not certificate.passed
    assert "rounding can do no more" in certificate.results[0].difference.reason


def test_a_wide_gap_is_not_explained_by_small_noise() -> None:
    def rarely(logits: Tensor, nodes: int) -> Tensor:
        """Small noise in every shape that is measured, a whole flip in one that is not."""
        return logits.flip(-1) if nodes == 6 else logits + 1e-7 * nodes

    certificate = certificate_of(
        shifted(rarely, exact="near-tie", dtype=torch.float32), Grid(depths=(5,), max_new_tokens=16, batch=1)
    )
    assert certificate.count("NOT EXPLAINED") > 0
    assert "above the tolerance" in next(r.difference.reason for r in certificate.results if r.difference)


def test_a_lossy_rule_is_caught_and_called_lossy() -> None:
    def flat(tokens: list[int]) -> Tensor:
        return laws(tokens) * 0.05

    def second_best(tokens: list[int], max_depth: int) -> list[int]:
        return [int(flat(tokens).topk(2).indices[1])]

    engine = engine_of(FunctionTarget(flat, VOCAB), second_best, rule="typical")
    certificate = certify(engine, PROMPTS, Grid(temperatures=(0.9,), max_new_tokens=16))
    assert any("lossy" in note for note in certificate.notes)


def test_logprobs_that_move_fail_where_bitwise_is_claimed() -> None:
    target = shifted(lambda logits, nodes: logits * (1 + 1e-9 * (nodes > 1)))
    certificate = certificate_of(target, options={"logprobs": 0})
    assert {result.difference.what for result in certificate.results if result.difference} == {"logprobs"}
    assert not certificate.passed


def test_an_error_in_either_run_fails() -> None:
    def broken(tokens: list[int], max_depth: int) -> list[int]:
        raise RuntimeError("no drafts today")

    certificate = certify(engine_of(FunctionTarget(laws, VOCAB), broken), PROMPTS, Grid(max_new_tokens=8))
    assert not certificate.passed
    assert "no drafts today" in certificate.results[0].difference.reason


def test_nothing_drafted_certifies_nothing() -> None:
    certificate = certify(engine_of(FunctionTarget(laws, VOCAB), lambda t, d: []), PROMPTS, Grid(max_new_tokens=8))
    assert certificate.count("equal") == 3
    assert not certificate.passed
    assert "no token was ever drafted" in certificate.faults[0]


# ---- interrupted, resumed


def test_an_interrupt_reports_what_was_certified_and_resume_does_the_rest(tmp_path: Path) -> None:
    def stop_at_two(result: Any, certificate: Certificate) -> None:
        if len(certificate.results) == 2:
            raise KeyboardInterrupt

    target = FunctionTarget(laws, VOCAB)
    grid = Grid(max_new_tokens=16, depths=(1, 4), batch=1)
    half = certify(engine_of(target), PROMPTS, grid, on_result=stop_at_two)
    assert (len(half.results), half.interrupted, half.complete, half.passed) == (2, True, False, False)
    save(half, tmp_path / "c.json")
    done_again: list[str] = []
    whole = certify(
        engine_of(target),
        PROMPTS,
        grid,
        earlier=restore(tmp_path / "c.json"),
        on_result=lambda result, certificate: done_again.append(result.key),
    )
    assert whole.passed
    assert len(done_again) == 4
    assert not {result.key for result in half.results} & set(done_again)
    assert Certificate.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole


def test_resume_refuses_another_subject_and_reruns_a_changed_prompt(tmp_path: Path) -> None:
    target = FunctionTarget(laws, VOCAB)
    grid = Grid(max_new_tokens=8)
    earlier = certify(engine_of(target), PROMPTS, grid)
    with pytest.raises(OptionError, match="max_new_tokens was 8 and is now 9"):
        certify(engine_of(target), PROMPTS, Grid(max_new_tokens=9), earlier=earlier)
    changed = [TestPrompt("a", "one", [2, 2]), *PROMPTS[1:]]
    rerun: list[str] = []
    certify(engine_of(target), changed, grid, earlier=earlier, on_result=lambda r, c: rerun.append(r.prompt_id))
    assert rerun == ["a"]


# ---- what is compared


def test_other_rules_are_compared_greedily_and_say_so() -> None:
    grid, notes = comparable(Grid(temperatures=(0.0, 1.0), seeds=5), make_rule("rejection"))
    assert grid.settings() == [(0.0, 0)]
    assert "statistical tests" in notes[0]
    assert comparable(Grid(temperatures=(1.0,)), make_rule("identical")) == (Grid(temperatures=(1.0,)), [])


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"depths": (0,)}, "depth is 0"),
        ({"depths": (-1,)}, "depth is -1"),
        ({"seeds": 0}, "seeds is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"temperatures": (-1.0,)}, "temperature is -1"),
        ({"temperatures": (float("nan"),)}, "temperature is nan"),
    ],
)
def test_bad_grids_are_refused_by_name(values: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        Grid(**values)


def test_first_difference_counts_a_missing_token() -> None:
    assert first_difference((1, 2), (1, 3)) == (1, 2, 3)
    assert first_difference((1, 2), (1,)) == (1, 2, None)


# ---- prompts


def test_own_prompts_have_six_kinds_of_at_least_four() -> None:
    prompts = load_prompts()
    kinds = {prompt.kind for prompt in prompts}
    assert kinds == {"chat", "code", "edit", "maths", "summary", "question"}
    assert all(sum(prompt.kind == kind for prompt in prompts) >= 4 for kind in kinds)
    assert [prompt.kind for prompt in load_prompts(limit=6)] == ["chat", "code", "edit", "maths", "summary", "question"]


def test_prompt_files_of_every_form(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "x"}\n\n{"id": 7, "category": "qa", "turns": ["a", "b"]}\n{"token_ids": [1, 2]}\n')
    text, chat, ids = load_prompts(str(path))
    assert (text.id, text.kind, text.prompt) == ("prompt-1", "prompt", "x")
    assert (chat.id, chat.kind, chat.prompt) == ("7", "qa", [{"role": "user", "content": "a"}])
    assert ids.encode(None) == [1, 2]
    with pytest.raises(PromptError, match="give token_ids"):
        text.encode(None)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "holds no prompts"),
        ("{", "line 1 is not JSON"),
        ('{"text": "x"}', "line 1 has no prompt"),
        ('{"turns": []}', "which is no prompt"),
        ('{"id": 1, "prompt": "x"}\n{"id": 1, "prompt": "y"}', "twice"),
    ],
)
def test_bad_prompt_files_are_refused_with_the_line(tmp_path: Path, content: str, match: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(OptionError, match=match):
        load_prompts(str(path))


def test_unknown_kinds_and_missing_files_are_refused() -> None:
    with pytest.raises(OptionError, match="did you mean 'maths'"):
        load_prompts(kinds=["math"])
    with pytest.raises(OptionError, match=r"cannot read prompts from '/no/such'"):
        load_prompts("/no/such")


# ---- the command


@pytest.fixture
def prompt_file(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"id": p.id, "token_ids": p.prompt}) for p in PROMPTS))
    return str(path)


def run_on(monkeypatch: pytest.MonkeyPatch, target: FunctionTarget, *args: str) -> int:
    monkeypatch.setattr(command, "load", lambda *_, rule, **__: engine_of(target, rule=rule))
    return run(["certify", "--max-new-tokens", "12", *args])


def test_the_command_exits_0_when_equal_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c.json"
    args = ["--prompts", prompt_file, "--temperature", "0,0.7", "--depth", "1,3", "--json", str(out)]
    assert run_on(monkeypatch, FunctionTarget(laws, VOCAB), *args) == 0
    assert "CERTIFIED" in capsys.readouterr().out
    written = json.loads(out.read_text())
    assert written["summary"] | {"tokens": 0} == {
        "passed": True,
        "complete": True,
        "tokens": 0,
        "equal": 12,
        "near_ties": 0,
        "not_explained": 0,
    }
    assert run_on(monkeypatch, FunctionTarget(laws, VOCAB), *args, "--resume") == 0


def test_the_command_exits_1_on_a_broken_target(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = shifted(lambda logits, nodes: logits.roll(1, -1) if nodes > 4 else logits)
    assert run_on(monkeypatch, target, "--prompts", prompt_file) == 1
    assert "FAILED" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["--depth", "x"],
        ["--depth", "0"],
        ["--temperature", "warm"],
        ["--resume"],
        ["--set", "top_p"],
        ["--set", "top_z=1"],
        ["--set", "temperature=1"],
        ["--rule", "identicle"],
        ["--prompts", "/no/such.jsonl"],
        ["--kinds", "poems"],
        ["--max-new-tokens", "0"],
        ["--no-such-option"],
    ],
)
def test_bad_command_lines_exit_2_with_one_line(
    monkeypatch: pytest.MonkeyPatch, prompt_file: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on(monkeypatch, FunctionTarget(laws, VOCAB), "--prompts", prompt_file, *args) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
