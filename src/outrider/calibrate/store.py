"""Measured costs as files in the user's cache folder: one per machine, target and settings; drafters join it.

The file's name is a digest of everything that decides speed, so a change of any of it means to measure anew.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.drafters.base import Drafter
from outrider.errors import OptionError
from outrider.files import write_whole
from outrider.machine import machine
from outrider.models import cache_folder as models_folder
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.targets.base import Target, TargetInfo

VERSION = 2


@dataclass(frozen=True)
class Calibration:
    """What was measured, of what, and when. costs.drafters is keyed by `describe`."""

    key: Mapping[str, Any]
    date: str
    costs: CostModel

    def for_drafters(self, drafters: Mapping[str, Drafter]) -> CostModel:
        """The costs with drafters under the names that an engine gives them; those not measured are left out."""
        known = self.costs.drafters
        named = {name: known[words] for name, one in drafters.items() if (words := describe(one)) in known}
        return replace(self.costs, drafters=named)

    def with_drafters(self, costs: Mapping[str, DraftCost]) -> "Calibration":
        return replace(self, costs=replace(self.costs, drafters={**self.costs.drafters, **costs}))


def describe(drafter: Drafter) -> str:
    """A drafter's name and options as one text, such as `lookup(max_ngram=3, min_ngram=1)`."""
    if not dataclasses.is_dataclass(drafter):
        return drafter.name
    options = [f for f in dataclasses.fields(drafter) if f.init]
    return f"{drafter.name}({', '.join(f'{f.name}={_shown(getattr(drafter, f.name))}' for f in options)})"


def key_of(target: Target) -> dict[str, Any]:
    """Everything that decides how fast this target runs here."""
    info = target.info
    return {"version": VERSION, "machine": machine(), "target": _facts(info), "kind": type(target).__name__}


def path_of(key: Mapping[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder() / f"{digest}.json"


def folder() -> Path:
    """outrider/calibration in the user's cache folder."""
    return models_folder().parent / "calibration"


def find(target: Target) -> Calibration | None:
    """What was measured of this target on this machine, or None. A file that cannot be read counts as none."""
    key = key_of(target)
    try:
        data = json.loads(path_of(key).read_text(encoding="utf-8"))
        return Calibration(data["key"], str(data["date"]), CostModel.from_dict(data["costs"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OptionError):
        return None


def save(calibration: Calibration) -> Path:
    """Write it whole or not at all. Raises OSError."""
    path = path_of(calibration.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"key": calibration.key, "date": calibration.date, "costs": calibration.costs.to_dict()}
    write_whole(path, json.dumps(content, indent=1))
    return path


def _facts(info: TargetInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "vocab_size": info.vocab_size,
        "max_length": info.max_length,
        "dtype": str(info.dtype),
        "device": str(info.device),
        "exact": info.exact,
        "quantize": info.quantize,
    }


def _shown(value: Any) -> str:
    info = getattr(value, "info", None)
    return str(getattr(info, "name", None) or (value if isinstance(value, str) else repr(value)))
