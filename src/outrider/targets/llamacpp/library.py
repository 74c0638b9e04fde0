"""The installed llama.cpp: is it there, and in the right version; its log kept quiet; the proof that its build runs.

The proof is a child process that decodes a few tokens of the very model (trial.py), because a build for another
processor dies in an illegal instruction and would take the user's process with it. What passed is noted in the user's
cache folder by library, processor and model, so that it costs a second once.
"""

import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

from outrider.errors import ModelError
from outrider.files import cache_root
from outrider.machine import instruction_sets

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"  # the struct layouts that we fill belong to one version
REBUILD = "python -m outrider.targets.llamacpp.build --force"
INSTALL = "make llamacpp, or python -m outrider.targets.llamacpp.build"
TRIAL = Path(__file__).parent / "trial.py"
TRIAL_SECONDS = 300.0
ERROR_LEVEL = 4  # ggml.h


def missing() -> str:
    """Why llama.cpp cannot be used here; "" if it is installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        return f"{PACKAGE} is not installed"
    try:
        found = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return f"{PACKAGE} is not installed"
    return "" if found == VERSION else f"{PACKAGE} is {found}, and this version of Outrider works with {VERSION}"


@cache
def library() -> Any:
    """The low-level interface of llama.cpp. Raises ModelError if it is missing or cannot be loaded."""
    if reason := missing():
        raise ModelError(
            f"the llama.cpp backend cannot be used: {reason}; {INSTALL} builds it, backend='torch' does without"
        )
    os.environ.setdefault("KMP_BLOCKTIME", "0")  # clang's OpenMP beside torch's: idle threads must not spin
    try:
        native: Any = importlib.import_module("llama_cpp.llama_cpp")
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelError(f"the llama.cpp library cannot be loaded: {error}; rebuild it: {REBUILD}") from error
    log(native)
    native.llama_backend_init()
    return native


def check_runs(model: Path) -> None:
    """Returns once a child process has decoded with this library, processor and model; else raises ModelError."""
    note = notes_folder() / f"{_identity(model)}.ok"
    if note.exists():
        return
    try:
        done = subprocess.run(
            [sys.executable, str(TRIAL), str(model)], capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelError(
            f"the trial of llama.cpp on {model.name} did not end: {error}; rebuild it: {REBUILD}"
        ) from error
    if done.returncode:
        raise ModelError(_why(model, done))
    _write(note)


def notes_folder() -> Path:
    """Where passed trials are noted: llamacpp in the user's cache folder."""
    return cache_root() / "llamacpp"


def _why(model: Path, done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return (
            f"the installed llama.cpp dies here with {name} in its first pass over {model.name}: it was built for "
            f"another processor or with a faulty compiler; rebuild it: {REBUILD}, or use backend='torch'"
        )
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"status {done.returncode}"
    return f"llama.cpp cannot run {model}: {reason}"


def _identity(model: Path) -> str:
    """Library, processor and model in one short word."""
    spec = importlib.util.find_spec("llama_cpp")
    places = spec.submodule_search_locations if spec else None
    files = sorted(Path(place) for root in places or () for place in Path(root).glob("lib/*"))
    parts = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in (*files, model)]
    return hashlib.sha256("\n".join([*parts, instruction_sets()]).encode()).hexdigest()[:20]


def _write(note: Path) -> None:
    """A note that cannot be written only costs the next trial."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()
    except OSError:
        return


@cache
def log(native: Any) -> "Log":
    """The one log of this process, listening to llama.cpp from the first call on."""
    return Log(native)


class Log:
    """Keeps llama.cpp's words from the terminal, and remembers its last complaints for our own messages."""

    def __init__(self, native: Any) -> None:
        self._errors: deque[str] = deque(maxlen=4)
        self._callback = native.llama_log_callback(self._hear)  # called from C, so it must live as long as the library
        native.llama_log_set(self._callback, ctypes.c_void_p(0))

    def forget(self) -> None:
        self._errors.clear()

    def reason(self) -> str:
        """The last complaint, or that there was none."""
        return self._errors[-1] if self._errors else "llama.cpp gave no reason"

    def _hear(self, level: int, text: bytes, user_data: Any) -> None:
        line = text.decode(errors="replace").strip()
        if level == ERROR_LEVEL and line:
            self._errors.append(line)
