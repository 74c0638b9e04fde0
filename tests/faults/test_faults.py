"""The suite can fail: a few faults run here, and all of them still fit the source."""

import subprocess
import sys

import pytest

from .patches import FAULTS, QUICK, Edit
from .runner import ROOT, named, replaced


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_still_fits_the_source(fault) -> None:
    texts = {edit.path: (ROOT / "src/outrider" / edit.path).read_text() for edit in fault.edits}
    for edit in fault.edits:
        texts[edit.path] = replaced(texts[edit.path], edit)
        compile(texts[edit.path], edit.path, "exec") if edit is fault.edits[-1] else None
    assert all((ROOT / "tests" / tests.partition(" ")[0]).is_file() for tests in fault.tests)


def test_there_are_enough_faults_of_different_names() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 20


def test_a_text_that_is_not_there_exactly_once_is_refused() -> None:
    for text in ("", "x x"):
        with pytest.raises(ValueError, match="up to date"):
            replaced(text, Edit("a.py", "x", "y"))
    with pytest.raises(ValueError, match="no fault 'z'"):
        named(["z"])


def test_quick_faults_are_caught_and_a_harmless_one_is_not() -> None:
    command = [sys.executable, "-m", "tests.faults", "--fresh", "--only"]
    done = subprocess.run([*command, *QUICK], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": caught by") == len(QUICK)


def test_a_change_that_does_nothing_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the runner: a patch without effect is reported, and one that cannot be imported is no success."""
    program = (
        "from tests.faults.patches import fault\nfrom tests.faults.runner import Runner\n"
        "same = fault('same', 'engine/row.py', 'finish: FinishReason | None = None\\n        match', "
        "'finish: FinishReason | None = None  # same\\n        match', 'cases/test_met.py met_2')\n"
        "broken = fault('broken', 'types.py', 'import torch\\n', 'import torhc\\n', 'cases/test_met.py met_2')\n"
        "print(Runner(remember=False).run([same, broken]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "same: SURVIVED" in done.stdout
    assert "broken: BROKEN" in done.stdout
    assert "['same', 'broken']" in done.stdout
