"""What a plan has done so far, in a file, so that an interrupt loses nothing and nothing is computed twice.

Kept beside the result as NAME.work.json: answers that were written, and what replays found. A changed target, traffic
or list of drafters begins a new one.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.errors import OptionError
from outrider.files import write_whole

VERSION = 2


class Work:
    """Values by name. key: all that they depend on. path None: kept in memory alone."""

    def __init__(self, path: Path | None, key: Mapping[str, Any]) -> None:
        self._path = path
        self._digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        self._values: dict[str, Any] = _read(path, self._digest) if path else {}
        self.resumed = len(self._values)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """The value of that name, made and kept if it was not there: plain values, as JSON holds them."""
        if name not in self._values:
            self._values[name] = make()
            self._save()
        return self._values[name]

    def drop(self, names: Sequence[str]) -> None:
        """Forget these values."""
        for name in names:
            self._values.pop(name, None)

    def _save(self) -> None:
        if self._path is None:
            return
        content = {"version": VERSION, "key": self._digest, "values": self._values}
        try:
            write_whole(self._path, json.dumps(content))
        except OSError as error:
            raise OptionError(
                f"cannot write to {self._path}: {error.strerror}; name another file with --out"
            ) from error


def _read(path: Path, digest: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return dict(data["values"]) if (data["version"], data["key"]) == (VERSION, digest) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
