"""Files and folders that are there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from outrider.errors import OptionError


def user_path(name: str) -> Path:
    """`~` and `~user` expanded; a user that does not exist is a name like any other (Path.expanduser would raise)."""
    return Path(os.path.expanduser(name))


def cache_root() -> Path:
    """Where everything that can be made again is kept: $OUTRIDER_CACHE, $XDG_CACHE_HOME/outrider or ~/.cache/outrider.

    Not created here.
    """
    if chosen := os.environ.get("OUTRIDER_CACHE"):
        return user_path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "outrider"


def check_writable(path: str | Path | None, option: str) -> None:
    """OptionError if a file cannot be written there; to be asked before long work. None is no file."""
    if path is None:
        return
    file = Path(path)
    new = not file.exists()
    try:
        file.open("ab").close()
        if new:
            file.unlink()
    except OSError as error:
        raise unwritable(file, option, error) from error


def unwritable(path: Path, option: str, error: OSError) -> OptionError:
    """What is said of a file that cannot be written. option: who named it."""
    return OptionError(
        f"{option} {path} cannot be written ({error.strerror}); name a file in a folder that exists and can be"
    )


def write_whole(path: Path, text: str) -> None:
    """The file holds the text, or, if anything goes wrong, what it held before. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


@contextmanager
def scratch_beside(folder: Path) -> Generator[Path]:
    """A new folder beside this one, to be filled and renamed; what is left of it goes away. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
