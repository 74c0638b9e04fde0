"""What a target put after a token, and after two: its best next candidates and their chances, over all passes seen.

Two tokens tell more than one but come up less often, so both are kept and the longer context is asked first. A pass
counts half and all earlier ones together the other half: one pass alone speaks of its own place too much. Bounded:
what was longest not seen goes first.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrider.errors import OptionError
from outrider.files import write_whole

LIMIT = 1 << 16  # contexts kept
FORMAT = "outrider followers 1"

Context = tuple[int, ...]  # one token, or two
Candidates = tuple[tuple[int, float], ...]  # (token, chance), likeliest first


class Followers:
    """width: candidates kept per context. start: what is known beforehand; it is read and never changed."""

    def __init__(self, width: int, start: "Followers | None" = None) -> None:
        self._width = width
        self._start = start
        self._after: dict[Context, Candidates] = {}

    def find(self, before: int, token: int) -> tuple[int, Candidates]:
        """Candidates after (before, token), or else after token alone; 2 or 1 tells which, 0 that none are known."""
        for context in ((before, token), (token,)):
            if found := self._known(context):
                return len(context), found
        return 0, ()

    def learn(self, before: int, token: int, seen: Candidates) -> None:
        """What a pass put after these two tokens."""
        for context in ((before, token), (token,)):
            known = self._known(context)
            self._after.pop(context, None)  # so that it becomes the newest
            self._after[context] = _joined(known, seen, self._width) if known else seen[: self._width]
        while len(self._after) > LIMIT:
            del self._after[next(iter(self._after))]

    def save(self, path: Path, about: dict[str, Any]) -> None:
        """Write all to a file, with what it is about. Raises OSError."""
        rows = [
            [*context, [token for token, _ in found], [round(1000 * chance) for _, chance in found]]
            for context, found in self._after.items()
        ]
        write_whole(path, json.dumps({"format": FORMAT, **about, "after": rows}))

    @classmethod
    def load(cls, path: Path, width: int, about: dict[str, Any]) -> "Followers":
        """What `save` wrote. Raises OptionError if it is no such file, or about something else."""
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            rows = [(tuple(context), ids, parts) for *context, ids, parts in content["after"]]
            made = cls(width)
            made._after = {c: tuple(zip(i, (p / 1000 for p in parts), strict=True))[:width] for c, i, parts in rows}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise OptionError(
                f"cannot start from {path}: {error}; `outrider drafters tune-recycle` makes one"
            ) from error
        if other := [name for name, value in about.items() if content.get(name) != value]:
            said = ", ".join(f"{name} {content.get(name)!r} instead of {about[name]!r}" for name in other)
            raise OptionError(f"{path} was made for another target ({said}); make one for this target")
        return made

    def _known(self, context: Context) -> Candidates:
        found = self._after.get(context)
        if found is None and self._start is not None:
            return self._start._known(context)
        return found or ()


def _joined(known: Candidates, seen: Sequence[tuple[int, float]], width: int) -> Candidates:
    chances = {token: 0.5 * chance for token, chance in known}
    for token, chance in seen:
        chances[token] = chances.get(token, 0.0) + 0.5 * chance
    return tuple(sorted(chances.items(), key=lambda pair: -pair[1])[:width])
