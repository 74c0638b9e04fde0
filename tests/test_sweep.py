"""The sweep of drafters: what its figures are made of, and that a text that differs hides its speed."""

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from helpers_drafters import World
from outrider.bench.sweep import AGAIN, PLAIN, Entry, Sweep
from outrider.bench.sweep_table import lines, markdown, tables
from outrider.cli.sweep import _earlier  # pyright: ignore[reportPrivateUsage]
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.recycle import RecycleDrafter
from outrider.errors import OptionError
from outrider.prompts import TestPrompt

KINDS = ("chat", "code", "edit", "maths", "summary", "question")
PROMPTS = [TestPrompt("a", "chat", [1, 2, 3, 1, 2]), TestPrompt("b", "code", [4, 4, 4])]


def entry(**values: object) -> Entry:
    base = Entry("a", "chat", 0.0, PLAIN, "identical", 10, 10, 0, 0, 2.0, 0.0, None)
    return replace(base, **values)  # pyright: ignore


def swept(earlier: list[Entry] | None = None) -> list[Entry]:
    drafters = {"lookup": LookupDrafter(), "recycle": RecycleDrafter()}
    sweep = Sweep(World(11, seed=5).target(()), drafters, "fixed", 12)
    return list(sweep.run(PROMPTS, (0.0, 0.7), ("identical", "rejection"), earlier or []))


def test_every_combination_is_run_once_and_identical_texts_are_equal() -> None:
    entries = swept()
    assert len(entries) == len({one.key for one in entries}) == 2 * (2 + 2) + 2 * (2 + 2 * 2)
    assert all(one.equal for one in entries if one.drafter != PLAIN and one.rule == "identical")
    assert all(one.equal is None for one in entries if one.rule == "rejection")
    assert all(one.num_tokens == 12 and one.rounds <= 12 and one.seconds > 0 for one in entries)


def test_a_sweep_goes_on_where_it_stopped() -> None:
    entries = swept()
    rest = swept(entries[:7])
    assert [one.key for one in rest] == [one.key for one in entries[7:]]


def test_a_line_is_worked_out_from_its_entries() -> None:
    drafted = entry(drafter="x", rounds=4, proposed=12, accepted=6, seconds=1.0, draft_seconds=0.2, equal=True)
    other = [entry(prompt_id="b", kind="code", seconds=1.0), replace(drafted, prompt_id="b", kind="code", seconds=2.0)]
    line = lines([entry(), drafted, *other])[1]
    assert line.yields == {"chat": 2.5, "code": 2.5}
    assert "| 0 | x | all | 2.50 | 2.50 |" in markdown([line])
    assert (line.tokens_per_round, line.acceptance, line.draft_ms) == (2.5, 0.5, 50.0)
    assert line.ratios == {"chat": 2.0, "code": 0.5}
    assert line.ratio == pytest.approx(1.0)
    assert "| 0 | x | all | 2.50 | 50% | 50.00 | 6.7 | 1.00 | 2.00 | 0.50 | 2/2 |" in markdown([line])


def test_plain_runs_twice_and_the_second_shows_the_noise() -> None:
    found = lines([entry(), entry(drafter=AGAIN, seconds=2.5, equal=True)])
    assert found[1].ratio == pytest.approx(0.8)
    assert "| 0 | plain again |  | 1.00 |  | 0.00 | 4.0 | 0.80 | 0.80 | 1/1 |" in markdown(found)
    assert [one.drafter for one in swept()][:4] == [PLAIN, "lookup", "recycle", AGAIN]


def test_a_terminal_gets_tables_that_fit() -> None:
    found = lines(
        [entry(), *(entry(kind=kind, prompt_id=kind, drafter="mix:suffix+recycle", equal=True) for kind in KINDS)]
    )
    console = Console(width=80, file=io.StringIO())
    console.print(*tables(found))
    seen = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert max(map(len, seen.splitlines())) <= 80
    assert "…" not in seen
    assert all(kind in seen for kind in KINDS)
    assert "|" not in seen


def test_no_speed_is_told_of_another_text() -> None:
    found = lines([entry(), entry(drafter="x", equal=False)])[1]
    assert found.ratio is None
    assert "DIFFERS" in markdown([found])


def test_a_sweep_goes_on_only_from_the_same_settings(tmp_path: Path) -> None:
    path, about = tmp_path / "runs.json", {"target": "a", "max_new_tokens": 8}
    path.write_text(json.dumps({"settings": about, "runs": [asdict(entry())]}), "utf-8")
    assert _earlier(path, about) == [entry()]
    with pytest.raises(OptionError, match="another target, max_new_tokens"):
        _earlier(path, {"target": "b", "max_new_tokens": 9})
    path.write_text("[]", "utf-8")
    with pytest.raises(OptionError, match="cannot resume"):
        _earlier(path, about)
