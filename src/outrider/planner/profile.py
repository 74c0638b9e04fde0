"""A profile: how to serve a target, as a small JSON file that `generate` and `serve` take with --profile."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from outrider.api import drafters_by_name
from outrider.drafters.base import Drafter
from outrider.errors import OptionError, did_you_mean
from outrider.policy.base import Policy
from outrider.policy.fixed import FixedPolicy
from outrider.policy.make import preferred

VERSION = 1


@dataclass(frozen=True)
class Profile:
    """target: its name. drafters: specs, as on a command line. policy: "auto" or "fixed"; the latter has a drafter
    (by its name in the engine), max_depth and max_nodes. dtype, device, quantize: as `load` takes them. about: what it
    rests on, for a person to read.
    """

    target: str
    drafters: tuple[str, ...]
    policy: str
    drafter: str | None = None
    max_depth: int | None = None
    max_nodes: int | None = None
    dtype: str | None = None
    device: str = "cpu"
    quantize: str | None = None
    version: int = VERSION
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise OptionError(f"the profile has version {self.version!r}, this program reads {VERSION}; plan again")
        if self.policy not in ("auto", "fixed"):
            raise OptionError(f"the profile's policy is {self.policy!r}; it must be auto or fixed")
        if self.policy == "fixed" and (self.drafter is None or self.max_depth is None):
            raise OptionError("a fixed profile needs a drafter and max_depth")
        if self.drafter not in (None, "none", *self._made):
            raise OptionError(f"the profile's drafter is {self.drafter!r}, which is none of its drafters")

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", "utf-8")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "drafters": list(self.drafters)}

    def check_target(self, name: str) -> None:
        """OptionError if the profile was made for another target."""
        if name != self.target:
            raise OptionError(f"the profile is for target {self.target!r}, not {name!r}; plan again for that one")

    def loading(self) -> dict[str, Any]:
        """How its target is loaded."""
        return {"dtype": self.dtype, "device": self.device, "quantize": self.quantize}

    @cached_property
    def _made(self) -> dict[str, Drafter]:
        return drafters_by_name(self.drafters)

    def make_drafters(self) -> dict[str, Drafter]:
        """Its drafters under the names that requests use; the same ones every time, so for one engine."""
        return dict(self._made)

    def make_policy(self) -> str | Policy:
        """What an engine takes. A request that names another of the drafters gets it as deep as that one prefers."""
        if self.policy == "auto":
            return "auto"
        name, others = self.drafter or "none", preferred(self._made)
        others.pop(name, None)
        return FixedPolicy(name, self.max_depth or 0, self.max_nodes, others)


def load_profile(path: Path) -> Profile:
    """The profile in the file. Raises OptionError for a missing or broken one, or one with an unknown key."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read the profile {path}: {error.strerror}") from error
    except ValueError as error:
        raise OptionError(f"{path} is no profile: it is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise OptionError(f"{path} is no profile: it holds {type(data).__name__}, not an object")
    known = [one.name for one in fields(Profile)]
    for name in data:
        if name not in known:
            raise OptionError(f"{path} has an unknown key {name!r}{did_you_mean(str(name), known)}")
    for name in ("version", "target", "drafters", "policy"):
        if name not in data:
            raise OptionError(f"{path} is no profile: it has no {name!r}")
    if not isinstance(data["drafters"], list) or not all(isinstance(spec, str) for spec in data["drafters"]):
        raise OptionError(f"{path} has drafters {data['drafters']!r}; it must be a list of specs")
    for name in ("target", "drafter", "dtype", "device", "quantize"):
        if not isinstance(data.get(name), str | None):
            raise OptionError(f"{path} has {name} {data[name]!r}; it must be a text")
    values: dict[str, Any] = {**data, "drafters": tuple(data["drafters"])}
    return Profile(**values)
