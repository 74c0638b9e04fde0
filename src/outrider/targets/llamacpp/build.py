"""Builds and installs llama-cpp-python well on this machine: `python -m outrider.targets.llamacpp.build`.

It exists as source only, and a careless build dies in its first AMX instruction: gcc 12 with all native instructions
does. So clang is taken where it is found; gcc builds natively where the processor has no AMX, and with AMX left out
where it has. The wheel is kept in the user's cache folder by version, switches, compiler and processor, so it is built
once per machine. A build that was stopped goes on where it was.
"""

import argparse
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from outrider.errors import ModelError, OutriderError
from outrider.files import cache_root
from outrider.machine import instruction_sets
from outrider.targets.llamacpp.library import PACKAGE, VERSION

NO_COMPILER = 3  # exit status
INSTALL_ONE = "no C and C++ compiler on PATH; install clang, or g++ (Debian: apt-get install clang)"
COMPILERS = (("clang", "clang++"), ("gcc", "g++"), ("cc", "c++"))
ALWAYS = ("-DLLAVA_BUILD=OFF",)
NATIVE = ("-DGGML_NATIVE=ON",)
WITHOUT_AMX = ("-DGGML_NATIVE=OFF", "-DGGML_AMX_TILE=OFF", "-DGGML_AMX_INT8=OFF", "-DGGML_AMX_BF16=OFF")
SWITCHES = {  # processor flag: what uses it
    "sse4_2": "SSE42",
    "avx": "AVX",
    "avx2": "AVX2",
    "bmi2": "BMI2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "avx_vnni": "AVX_VNNI",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install from the cache, else build first. Returns an exit status; NO_COMPILER says that nothing can be built."""
    parser = argparse.ArgumentParser(description="Build and install llama-cpp-python for this machine.")
    parser.add_argument("--force", action="store_true", help="build again, whatever is cached or installed")
    parser.add_argument("--if-cached", action="store_true", help="install only a wheel that is there already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at the same time")
    given = parser.parse_args(arguments)
    found = compilers()
    if found is None:
        print(f"cannot build {PACKAGE}: {INSTALL_ONE}", file=sys.stderr)
        return NO_COMPILER
    try:
        return _install(found, force=given.force, if_cached=given.if_cached, jobs=given.jobs)
    except (OutriderError, OSError, subprocess.CalledProcessError) as error:
        print(f"cannot build {PACKAGE}: {error}", file=sys.stderr)
        return 1


def compilers() -> tuple[str, str] | None:
    """C and C++ compiler of this machine, clang first. None if there is none."""
    found = (pair for pair in COMPILERS if all(shutil.which(name) for name in pair))
    return next(found, None)


def switches(compiler: str, flags: Sequence[str]) -> tuple[str, ...]:
    """CMake's switches for a compiler and a processor with these flags; AMX is left to clang."""
    if not any(flag.startswith("amx") for flag in flags) or "clang" in compiler:
        return (*ALWAYS, *NATIVE)
    return (*ALWAYS, *WITHOUT_AMX, *(f"-DGGML_{name}=ON" for flag, name in SWITCHES.items() if flag in flags))


def wheel_folder(compiler: str, chosen: Sequence[str]) -> Path:
    """Where the wheel for this version, compiler, processor and these switches lies."""
    about = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    parts = (VERSION, about, instruction_sets(), *chosen, f"{sys.version_info.major}.{sys.version_info.minor}")
    return cache_folder() / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """Wheels in the user's cache folder."""
    return cache_root() / "wheels"


def _install(found: tuple[str, str], *, force: bool, if_cached: bool, jobs: int) -> int:
    c, cxx = found
    chosen = switches(c, instruction_sets().split())
    folder = wheel_folder(c, chosen)
    wheel = _found(folder)
    if wheel is None and if_cached:
        print(f"no wheel of {PACKAGE} {VERSION} for this machine is cached; `make llamacpp` builds one")
        return 2
    if wheel is None or force:
        wheel = _build(folder, {"CC": c, "CXX": cxx, "CMAKE_ARGS": " ".join(chosen)}, jobs, afresh=force)
    _pip("install", "--quiet", *(["--force-reinstall", "--no-deps"] if force else []), str(wheel))
    print(f"installed {wheel.name} from {folder}")
    return 0


def _build(folder: Path, settings: dict[str, str], jobs: int, *, afresh: bool) -> Path:
    """The wheel, compiled with these environment settings; `folder` keeps what was compiled until it is whole."""
    if afresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    source = _source(folder)
    print(f"compiling {PACKAGE} {VERSION} with {settings['CC']}: 3 to 15 minutes", flush=True)
    environment = {**os.environ, **settings, "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("scikit_build_core") else []
    keep = ["-C", f"build-dir={folder / 'build'}"]
    _pip("wheel", "--no-deps", *isolation, *keep, "--wheel-dir", str(folder), str(source), environment=environment)
    wheel = _found(folder)
    if wheel is None:
        raise ModelError(f"pip made no wheel in {folder}")
    for rest in (source, folder / "build"):
        shutil.rmtree(rest, ignore_errors=True)
    return wheel


def _source(folder: Path) -> Path:
    """The unpacked source, fetched if it is not there."""
    source = folder / f"{PACKAGE.replace('-', '_')}-{VERSION}"
    if not (source / "PKG-INFO").is_file():
        _pip("download", "--quiet", "--no-deps", "--no-binary", PACKAGE, "--dest", str(folder), f"{PACKAGE}=={VERSION}")
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        archive.unlink()
        _leave_out_common(source / "CMakeLists.txt")
    return source


def _leave_out_common(recipe: Path) -> None:
    """Half of the compiler's time goes into a library for llama.cpp's own programs, which Python never loads."""
    text = recipe.read_text()
    recipe.write_text(text.replace("set(LLAMA_BUILD_COMMON ON CACHE", "set(LLAMA_BUILD_COMMON OFF CACHE"))


def _found(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(f"*-{VERSION}-*.whl"))), None)


def _pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
