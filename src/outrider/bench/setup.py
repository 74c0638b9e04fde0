"""From names to systems: the target's weights are read once and shared by our engine and transformers' modes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.api import resolve_drafter
from outrider.bench.runs import System
from outrider.drafters.base import Drafter
from outrider.drafters.registry import available_drafters, make_drafter
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.models import is_model
from outrider.targets.base import Target

LOOKUP_TOKENS = 10  # of transformers' prompt lookup; its documentation's own choice


@dataclass(frozen=True)
class Bench:
    """What is compared: the target as ours, the same weights as transformers' module (None if not asked for)."""

    target: Target
    model: Any
    systems: list[System]


def set_up(
    target_name: str,
    drafters: Sequence[str],
    *,
    dtype: str | None = None,
    device: str = "cpu",
    max_depth: int | None = None,
    policy: str = "fixed",
    against_transformers: bool = True,
) -> Bench:
    """Loads everything. Raises OptionError, ModelError, PairingError."""
    from outrider.targets.hf.target import HFTarget  # slow import: transformers

    if len(set(drafters)) != len(drafters):
        raise OptionError(f"a drafter is named twice: {', '.join(drafters)}")
    model, tokenizer = read(target_name, dtype, device)
    target = HFTarget(model, tokenizer, name=target_name, max_rows=1)
    from outrider.bench.systems import Ours, Transformers  # slow import: transformers

    systems: list[System] = [Ours("outrider plain", "plain", Engine(target), 0)]
    rivals: list[System] = [Transformers("transformers plain", "plain", model, target.info.eos_token_ids)]
    for spec in drafters:
        drafter, rival = _drafter(spec, dtype, device)
        systems.append(Ours(f"outrider {shown(spec)}", drafter.name, Engine(target, drafter, policy=policy), max_depth))
        if rival and rival.name not in [other.name for other in rivals]:
            rivals.append(
                Transformers(
                    rival.name, drafter.name, model, target.info.eos_token_ids, rival.settings, rival.assistant
                )
            )
    return Bench(target, model, systems + (rivals if against_transformers else []))


@dataclass(frozen=True)
class Rival:
    """The mode of transformers' generate that does the like of a drafter."""

    name: str
    settings: dict[str, Any]
    assistant: Any = None


def shown(spec: str) -> str:
    """A drafter's spec for a table: of a folder's or file's path, its last part."""
    return Path(spec).name if Path(spec).exists() else spec


def read(name: str, dtype: str | None, device: str) -> tuple[Any, Any]:
    """transformers' module and tokenizer."""
    from outrider.targets.hf import loader

    chosen = loader._dtype(dtype)  # pyright: ignore[reportPrivateUsage]
    model, tokenizer = loader._read(name, chosen, None)  # pyright: ignore[reportPrivateUsage]
    return model.to(device).eval(), tokenizer


def _drafter(spec: str, dtype: str | None, device: str) -> tuple[Drafter, Rival | None]:
    """Our drafter, and its rival if transformers has one."""
    name, _, rest = spec.partition(":")
    if name == "model" or (name not in available_drafters() and is_model(spec)):
        return _model_drafter(rest if name == "model" else spec, dtype, device)
    drafter = resolve_drafter(spec)
    if not isinstance(drafter, Drafter):
        raise OptionError(f"cannot compare {spec!r}; name one drafter")
    lookup = Rival("transformers prompt lookup", {"prompt_lookup_num_tokens": LOOKUP_TOKENS})
    return drafter, lookup if drafter.name == "lookup" else None


def _model_drafter(rest: str, dtype: str | None, device: str) -> tuple[Drafter, Rival]:
    from outrider.targets.hf.target import HFTarget

    first, *options = rest.split(",")
    name = first.removeprefix("model=")
    model, tokenizer = read(name, dtype, device)
    target = HFTarget(model, tokenizer, name=name, max_rows=1)
    drafter = make_drafter(",".join([f"model:{name}", *options]), model=target)
    return drafter, Rival(f"transformers assisted by {shown(name)}", {}, model)
