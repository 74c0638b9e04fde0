"""From C source to a shared library in the user's cache folder, compiled once per source, compiler and processor.

Knows compilers, flags and files; not what the library does. A library enters the cache only after a child process has
run it (trial.py), by an atomic rename, so that processes that start together never see a half-written or a bad one.
Its name holds its own checksum, so that a file that was damaged later is not loaded but built again. It is linked
against the OpenMP runtime that torch has already loaded: one runtime, one pool of threads.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from outrider.files import cache_root
from outrider.machine import instruction_sets

SOURCES = Path(__file__).parent / "csrc"
TRIALS = tuple(Path(__file__).parent / name for name in ("trial.py", "trial_decoder.py"))
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
TIMEOUT_SECONDS = 180.0
OPENMP_NAME = re.compile(r"lib(gomp|iomp5|omp)[^/]*\.(so|dylib)[^/]*$")


class BuildError(Exception):
    """The kernels cannot be built here; the message says why. Never leaves this package."""


def build() -> Path:
    """The compiled library's path: from the cache, else built and tried now. Raises BuildError with the reason."""
    compiler = find_compiler()
    runtime = openmp_runtime()
    folder, key = cache_folder(), _key(compiler, runtime)
    try:
        if library := _cached(folder, key):
            return library
        folder.mkdir(parents=True, exist_ok=True)
        return _compile(compiler, runtime, folder, key)
    except OSError as error:
        raise BuildError(f"cannot write to {folder}: {error}") from error


def find_compiler() -> str:
    """Path of the first C compiler on PATH. Raises BuildError if there is none."""
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise BuildError(f"no C compiler on PATH (looked for {', '.join(COMPILERS)})")


def openmp_runtime() -> str:
    """Path of the OpenMP runtime in this process, torch's own if several. Raises BuildError if none is found."""
    import torch

    folder = Path(torch.__file__).parent / "lib"
    loaded = {path for path in _mapped_files() if OPENMP_NAME.search(path)}
    shipped = {str(path) for path in folder.glob("lib*omp*") if OPENMP_NAME.search(str(path))}
    for candidates in (loaded & shipped, loaded, shipped):
        if candidates:
            return min(candidates)
    raise BuildError("torch has loaded no OpenMP runtime")


def cache_folder() -> Path:
    """Where compiled kernels live: kernels in the user's cache folder."""
    return cache_root() / "kernels"


def _cached(folder: Path, key: str) -> Path | None:
    """The library built earlier, if the file is still what was built."""
    found = (path for path in folder.glob(f"kernels-{key}-*.so") if path.stem.endswith(_checksum(path)))
    return next(found, None)


def _compile(compiler: str, runtime: str, folder: Path, key: str) -> Path:
    """Compile and try in a temporary folder within the cache, then move it into place in one step."""
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / "kernels.so"
        _run([compiler, *FLAGS, *sources, runtime, "-lm", "-o", str(fresh)], "the compiler failed")
        for trial in TRIALS:
            _run([sys.executable, str(trial), str(fresh), runtime], "the compiled kernels failed their trial")
        library = folder / f"kernels-{key}-{_checksum(fresh)}.so"
        os.replace(fresh, library)
    return library


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _run(command: list[str], failure: str) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{failure}: {error}") from error
    if result.returncode != 0:
        last = (result.stderr.strip() or "no message").splitlines()[-1]
        raise BuildError(f"{failure} with status {result.returncode}: {last}")


def _key(compiler: str, runtime: str) -> str:
    """Hash of everything that the compiled code depends on."""
    digest = hashlib.sha256()
    for path in [*sorted(SOURCES.iterdir()), *TRIALS]:
        digest.update(path.name.encode() + path.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    for part in (version, runtime.encode(), instruction_sets().encode(), *(flag.encode() for flag in FLAGS)):
        digest.update(part + b"\0")
    return digest.hexdigest()[:20]


def _mapped_files() -> set[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    return {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
