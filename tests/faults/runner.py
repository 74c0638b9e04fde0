"""Runs faults: each in a fresh process, on a copy of the tree, against the tests that must notice it.

Nothing in the working tree is ever changed. First the same tests run without a fault and must pass, for a test that
fails anyway proves nothing. Verdicts are kept by a hash of source, tests and fault, so an interrupted run goes on
where it was.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .patches import FAULTS, Edit, Fault

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".pytest_cache" / "faults.json"
TIMEOUT = 180  # seconds; a fault that makes the tests hang is noticed too
PASSED, FAILED = 0, 1  # pytest's exit codes
CRASHED = 70


@dataclass
class Runner:
    """Runs faults one by one. tell: called with a line of progress. remember: keep verdicts between runs."""

    tell: Callable[[str], None] = print
    remember: bool = True
    _folder: Path = field(default_factory=Path, init=False)
    _codes: dict[str, int | None] = field(default_factory=dict, init=False)

    def run(self, faults: Sequence[Fault]) -> list[str]:
        """Names of the faults that were not caught."""
        missed: list[str] = []
        with copied_tree() as self._folder:
            for number, fault in enumerate(faults, 1):
                verdict = self._verdict(fault)
                self.tell(f"[{number:2}/{len(faults)}] {fault.name}: {verdict}")
                if not verdict.startswith("caught"):
                    missed.append(fault.name)
        return missed

    def _verdict(self, fault: Fault) -> str:
        key = _digest(self._folder, fault)
        known = _load() if self.remember else {}
        if known.get(key, "").startswith("caught"):
            return known[key]
        try:
            verdict = self._try(fault)
        except ValueError as error:
            verdict = f"OUT OF DATE: {error}"
        if self.remember:
            _save({**known, key: verdict})
        return verdict

    def _try(self, fault: Fault) -> str:
        for tests in fault.tests:
            if (healthy := self._healthy(tests)) != PASSED:
                return f"UNUSABLE: without the fault, {tests} ends with code {healthy}"
            with applied(self._folder, fault):
                code = self._pytest(tests)
            if code in (FAILED, None):
                return f"caught by {tests}" + (" (it hung)" if code is None else "")
            if code != PASSED:
                return f"BROKEN: with the fault, {tests} cannot even start (code {code})"
        return "SURVIVED"

    def _healthy(self, tests: str) -> int | None:
        """The code of these tests without any fault, found once."""
        if tests not in self._codes:
            self._codes[tests] = self._pytest(tests)
        return self._codes[tests]

    def _pytest(self, tests: str) -> int | None:
        """pytest's exit code in a process of its own; None if it had to be stopped."""
        process = multiprocessing.get_context("fork").Process(target=_child, args=(self._folder, tests))
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            process.join()
            return None
        return process.exitcode


@contextlib.contextmanager
def copied_tree() -> Iterator[Path]:
    """A folder with copies of src and tests."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    with tempfile.TemporaryDirectory(prefix="outrider-faults-") as name:
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, Path(name) / part, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", name)
        yield Path(name)


@contextlib.contextmanager
def applied(folder: Path, fault: Fault) -> Iterator[None]:
    """The fault is in the copied source."""
    before = {edit.path: _source(folder, edit).read_text() for edit in fault.edits}
    try:
        for edit in fault.edits:
            path = _source(folder, edit)
            path.write_text(replaced(path.read_text(), edit))
        yield
    finally:
        for name, text in before.items():
            (folder / "src/outrider" / name).write_text(text)


def replaced(text: str, edit: Edit) -> str:
    """ValueError unless the text to replace occurs exactly once."""
    count = text.count(edit.old)
    if count != 1:
        raise ValueError(f"{edit.path} holds {count} times {edit.old!r}; bring the fault up to date")
    return text.replace(edit.old, edit.new)


def named(names: Sequence[str]) -> list[Fault]:
    """The faults of these names; all if none is given."""
    known = {fault.name: fault for fault in FAULTS}
    for name in names:
        if name not in known:
            raise ValueError(f"no fault {name!r}; --list shows them")
    return [known[name] for name in names] if names else list(FAULTS)


def _source(folder: Path, edit: Edit) -> Path:
    return folder / "src/outrider" / edit.path


def _child(folder: Path, tests: str) -> None:
    """Becomes a pytest run over the copy, silent; the shape checks of conftest.py are left out (values must tell)."""
    path, _, expression = tests.partition(" ")
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(folder / part) for part in ("src", "tests", "tests/conformance", "tests/cases")]
    os.chdir(folder)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other packages' plugins take seconds to load
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        import pytest

        options = [
            "-x",
            "-q",
            "--noconftest",
            "--assert=plain",
            "-p",
            "pytest_timeout",
            "-p",
            "no:cacheprovider",
            f"--rootdir={folder}",
        ]
        try:
            code = int(pytest.main([f"tests/{path}", *options, *(["-k", expression] if expression else [])]))
        except BaseException:  # never to be taken for a test that failed
            code = CRASHED
    os._exit(code)


def _digest(folder: Path, fault: Fault) -> str:
    """Of the fault, the source, the tests that must notice it, and what these import."""
    shared = [*(folder / "tests").glob("helpers*.py"), folder / "tests/conformance/found.py", folder / "tests/stats.py"]
    named = [folder / "tests" / tests.partition(" ")[0] for tests in fault.tests]
    files = sorted([*(folder / "src").rglob("*.py"), *shared, *named])
    whole = hashlib.sha256(repr(fault).encode())
    for path in files:
        whole.update(path.read_bytes())
    return f"{fault.name} {whole.hexdigest()[:16]}"


def _load() -> dict[str, str]:
    try:
        return json.loads(STATE.read_text())
    except (OSError, ValueError):
        return {}


def _save(verdicts: dict[str, str]) -> None:
    STATE.parent.mkdir(exist_ok=True)
    STATE.write_text(json.dumps(verdicts, indent=1))
