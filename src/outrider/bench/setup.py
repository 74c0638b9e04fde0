"""From names to systems: the target's weights are read once and shared by our engine and transformers' modes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from outrider.api import known_costs, resolve_drafter
from outrider.bench.equality import TheirLogits
from outrider.bench.llamacpp import LlamaCpp, llamacpp_peers
from outrider.bench.runs import System
from outrider.drafters.base import Drafter
from outrider.drafters.registry import available_drafters, make_drafter
from outrider.engine.engine import Engine
from outrider.errors import ModelError, OptionError
from outrider.models import is_model
from outrider.targets.base import Target
from outrider.targets.loading import choose_backend, load_target

LOOKUP_TOKENS = 10  # of transformers' prompt lookup; its documentation's own choice
OWN_MODEL = ("dtype", "device", "quantize", "backend")  # options of a draft model that is not shared with a rival


@dataclass(frozen=True)
class Bench:
    """What is compared: the target as ours, the same weights as transformers' module (None if not asked for).

    peers: what gives the logits of systems of other families. notes: whom we could not compare with, and why.
    other_weights: families whose weights differ from ours, whose texts may therefore differ too.
    """

    target: Target
    model: Any
    systems: list[System]
    peers: Mapping[str, TheirLogits] = field(default_factory=dict[str, TheirLogits])
    notes: tuple[str, ...] = ()
    other_weights: frozenset[str] = frozenset()


def set_up(
    target_name: str,
    drafters: Sequence[str],
    *,
    dtype: str | None = None,
    device: str = "cpu",
    quantize: str | None = None,
    max_depth: int | None = None,
    policy: str = "fixed",
    backend: str = "torch",
    backend_options: str | None = None,
    against: Sequence[str] = ("transformers",),
) -> Bench:
    """Loads everything. against: other families, of which an absent one is noted. quantize: of our target alone.

    Raises OptionError, ModelError, UnsupportedError.
    """
    if len(set(drafters)) != len(drafters):
        raise OptionError(f"a drafter is named twice: {', '.join(drafters)}")
    chosen, _ = choose_backend(target_name, backend, dtype=dtype, device=device, quantize=quantize)
    make = _LlamaCpp if chosen == "llama.cpp" else _Torch if quantize is None else partial(_Quantized, quantize)
    ours = make(target_name, dtype, device, backend_options, with_model="transformers" in against)
    from outrider.bench.systems import Ours  # slow import: transformers

    systems: list[System] = [Ours("outrider plain", "plain", Engine(ours.target), 0)]
    rivals: list[Rival] = [Rival("transformers plain", {}, method="plain")]
    for spec in drafters:
        drafter, rival = _drafter(spec, ours)
        engine = Engine(ours.target, drafter, policy=policy, costs=known_costs(ours.target, drafter))
        systems.append(Ours(f"outrider {shown(spec)}", drafter.name, engine, max_depth))
        if rival and rival.name not in [other.name for other in rivals]:
            rivals.append(rival)
    if "transformers" in against:
        systems += [_as_system(rival, ours) for rival in rivals]
    peers, notes = _llamacpp(target_name, systems) if "llama.cpp" in against else ([], ())
    return Bench(
        ours.target,
        ours.model,
        [*systems, *peers],
        {peer.family: peer.logits for peer in peers[:1]},
        notes,
        frozenset({system.family for system in [*systems, *peers]} - {"outrider"} if quantize else ()),
    )


class _Torch:
    """Models as transformers' modules, which our targets and transformers' modes share."""

    def __init__(self, name: str, dtype: str | None, device: str, options: str | None, *, with_model: bool) -> None:
        _refuse(options)
        self._dtype, self._device = dtype, device
        self.model, self.target = self.load(name)

    def load(self, name: str) -> tuple[Any, Target]:
        from outrider.targets.hf.target import HFTarget  # slow import: transformers

        model, tokenizer = read(name, self._dtype, self._device)
        return model, HFTarget(model, tokenizer, name=name, max_rows=1)


class _Quantized(_Torch):
    """Our target with smaller weights; transformers' module, if it is compared, has the weights as they are."""

    def __init__(
        self, quantize: str, name: str, dtype: str | None, device: str, options: str | None, *, with_model: bool
    ) -> None:
        if dtype is not None:
            raise OptionError(f"quantize={quantize!r} and dtype={dtype!r} exclude each other")
        _refuse(options)
        self._dtype, self._device = dtype, device
        self.target = load_target(name, backend="torch", device=device, quantize=quantize, max_rows=1)
        self.model: Any = read(name, dtype, device)[0] if with_model else None


def _refuse(options: str | None) -> None:
    if options:
        raise OptionError("backend_options are llama.cpp's, but torch runs here; leave them out")


class _LlamaCpp:
    """Models by llama.cpp; transformers' module beside the target's only if transformers is compared too."""

    def __init__(self, name: str, dtype: str | None, device: str, options: str | None, *, with_model: bool) -> None:
        self._options = options
        self.target = self.load(name)[1]
        self.model: Any = read(name, dtype, device)[0] if with_model else None

    def load(self, name: str) -> tuple[Any, Target]:
        return None, load_target(name, backend="llama.cpp", backend_options=self._options, max_rows=1)


def _llamacpp(name: str, systems: Sequence[System]) -> tuple[list[LlamaCpp], tuple[str, ...]]:
    """llama.cpp's own ways on the same file, or why they cannot be compared with."""
    from outrider.targets.llamacpp.library import missing
    from outrider.targets.llamacpp.loader import gguf_path

    if reason := missing():
        return [], (f"not compared with llama.cpp: {reason}",)
    try:
        path = gguf_path(name)
    except ModelError as error:
        return [], (f"not compared with llama.cpp: {error}",)
    return llamacpp_peers(path, [system.method for system in systems], torch.get_num_threads()), ()


def _as_system(rival: "Rival", ours: "_Torch | _LlamaCpp") -> System:
    from outrider.bench.systems import Transformers  # slow import: transformers

    ends = ours.target.info.eos_token_ids
    return Transformers(rival.name, rival.method, ours.model, ends, rival.settings, rival.assistant)


@dataclass(frozen=True)
class Rival:
    """The mode of transformers' generate that does the like of a drafter."""

    name: str
    settings: dict[str, Any]
    assistant: Any = None
    method: str = "lookup"


def shown(spec: str) -> str:
    """A drafter's spec for a table: of a folder's or file's path, its last part."""
    return Path(spec).name if Path(spec).exists() else spec


def read(name: str, dtype: str | None, device: str) -> tuple[Any, Any]:
    """transformers' module and tokenizer."""
    from outrider.targets.hf.loader import parse_dtype, read_model  # slow import: transformers

    model, tokenizer = read_model(name, parse_dtype(dtype))
    return model.to(device).eval(), tokenizer


def _drafter(spec: str, ours: "_Torch | _LlamaCpp") -> tuple[Drafter, Rival | None]:
    """Our drafter, and its rival if transformers has one."""
    name, _, rest = spec.partition(":")
    if name == "model" or (name not in available_drafters() and is_model(spec)):
        return _model_drafter(rest if name == "model" else spec, ours)
    drafter = resolve_drafter(spec)
    if not isinstance(drafter, Drafter):
        raise OptionError(f"cannot compare {spec!r}; name one drafter")
    lookup = Rival("transformers prompt lookup", {"prompt_lookup_num_tokens": LOOKUP_TOKENS})
    return drafter, lookup if drafter.name == "lookup" else None


def _model_drafter(rest: str, ours: "_Torch | _LlamaCpp") -> tuple[Drafter, Rival | None]:
    first, *options = rest.split(",")
    name = first.removeprefix("model=")
    model, target = ours.load(name)
    spec = ",".join([f"model:{name}", *options])
    apart = any(option.partition("=")[0] in OWN_MODEL for option in options)
    drafter = make_drafter(spec) if apart else make_drafter(spec, model=target)
    rival = Rival(f"transformers assisted by {shown(name)}", {}, model, method="model")
    return drafter, None if model is None else rival
