"""`outrider widths`: the arithmetic of break-even, and the command on a toy."""

import json
from pathlib import Path

import pytest

import outrider.cli.widths as command
from outrider.bench.breakeven import break_even, width_costs
from outrider.cli.main import run
from outrider.simulate import expected_tokens
from outrider.testing import FunctionTarget


@pytest.mark.parametrize(("growth", "depth"), [(1.2, 3), (2.5, 7), (3.999, 3), (1.001, 1)])
def test_at_the_break_even_a_round_brings_what_it_costs(growth: float, depth: int) -> None:
    acceptance = break_even(growth, depth)
    assert acceptance is not None
    assert expected_tokens(acceptance, depth) == pytest.approx(growth, rel=1e-6)


def test_the_ends_of_the_scale() -> None:
    assert break_even(0.9, 3) == 0.0  # a wider pass that costs nothing always pays
    assert break_even(1.0, 0) == 0.0
    assert break_even(4.5, 3) is None  # four tokens at best, for more than four passes


def test_growth_is_in_passes_of_one_token() -> None:
    one, four = width_costs({4: 0.3, 1: 0.1})
    assert (one.width, one.growth, one.break_even) == (1, 1.0, 0.0)
    assert four.growth == pytest.approx(3.0)
    assert four.break_even == pytest.approx(break_even(3.0, 3))


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = FunctionTarget(lambda tokens: [float(tokens[-1] == 1), 0.5], 2)
    monkeypatch.setattr(command, "load_target", lambda *_, **__: target)
    monkeypatch.setattr(command, "_context", lambda _: [0, 1] * 20)
    out = tmp_path / "w.json"
    words = [
        "widths",
        "--target",
        "toy",
        "--backend",
        "torch",
        "--backend",
        "llama.cpp",
        "--widths",
        "4,2",
        "--repeats",
        "1",
    ]
    assert run([*words, "--json", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "a chain pays from" in shown
    last = json.loads(shown.strip().splitlines()[-1])
    assert [cost["width"] for cost in last["backends"]["llama.cpp"]] == [1, 2, 4]
    assert json.loads(out.read_text())["backends"] == last["backends"]


@pytest.mark.parametrize("words", [["--widths", "0"], ["--widths", "x"], ["--repeats", "0"]])
def test_bad_numbers_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["widths", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
