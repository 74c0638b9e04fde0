"""A benchmark's runs in its result file while it grows, so that one that was stopped goes on where it was."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrider.bench.runs import Run, Timing
from outrider.errors import OptionError
from outrider.files import write_whole
from outrider.types import PhaseSeconds


def save_runs(path: Path, settings: Mapping[str, Any], runs: Sequence[Run]) -> None:
    """Keep what was run so far. Raises OptionError where the file cannot be written."""
    content = {"complete": False, "settings": settings, "runs": [asdict(run) for run in runs]}
    try:
        write_whole(path, json.dumps(content))
    except OSError as error:
        raise OptionError(f"cannot write to {path}: {error.strerror}; name another file with --json") from error


def restore_runs(path: Path, settings: Mapping[str, Any]) -> list[Run]:
    """The runs of a file that `save_runs` or a finished benchmark left; none if there is no file.

    Raises OptionError if it holds something else, or runs with other settings.
    """
    if not path.exists():
        return []
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        kept, runs = dict(data["settings"]), [_run(values) for values in data["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OptionError(f"{path} is no benchmark to go on with; name another file, or leave out --resume") from error
    wanted = json.loads(json.dumps(settings))
    for name, value in wanted.items():
        if kept.get(name) != value:
            raise OptionError(f"{path} was run with {name} {kept.get(name)!r}, not {value!r}; name another file")
    return runs


def _run(values: Mapping[str, Any]) -> Run:
    timing = dict(values["timing"])
    timing["token_ids"] = tuple(timing["token_ids"])
    timing["phases"] = None if timing["phases"] is None else PhaseSeconds(**timing["phases"])
    about: dict[str, Any] = {**values, "timing": Timing(**timing)}
    return Run(**about)
