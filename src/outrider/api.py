"""`load`: from names to a ready engine."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from outrider.acceptance import Rule, make_rule
from outrider.calibrate.store import find
from outrider.drafters.base import Drafter
from outrider.drafters.registry import available_drafters, make_drafter
from outrider.engine.engine import Engine
from outrider.engine.trace import RoundTrace
from outrider.errors import ModelError, OptionError, OutriderWarning, UnsupportedError
from outrider.files import check_writable
from outrider.models import is_model
from outrider.policy.base import Policy
from outrider.policy.cost_model import CostModel
from outrider.targets.base import Exactness, Target
from outrider.targets.loading import Backend, load_target
from outrider.traces.file import write_trace


def load(
    target: str | Target,
    drafter: str | Drafter | Mapping[str, Drafter] | None = None,
    *,
    rule: str | Rule = "identical",
    dtype: torch.dtype | str | None = None,
    device: str = "cpu",
    max_rows: int = 8,
    max_length: int | None = None,
    exact: Exactness | None = None,
    quantize: str | None = None,
    policy: str | Policy | None = None,
    backend: Backend = "auto",
    backend_options: Mapping[str, Any] | str | None = None,
    ignore_generation_config: bool = False,
    allow_plain: bool = False,
    on_round: Callable[[RoundTrace], None] | None = None,
    reuse_prefixes: bool = False,
    memory_floor: int | None = None,
    trace: str | Path | None = None,
    **drafter_options: Any,
) -> Engine:
    """An engine for a model by name, hub id, folder or .gguf file, and a drafter by name, spec or object.

    drafter: a drafter's name or spec ("lookup", "lookup:max_ngram=4"), or simply another model ("qwen-0.5b"), which
    then drafts. drafter_options go to the drafter. dtype: default the checkpoint's. max_length: default the model's
    limit, at most 4,096. exact: "bitwise" insists on bit-identical passes; default: what a test at load confirms.
    quantize: "int8" for a CPU target of half the bytes, exact in itself, close to the original (docs/quantization.md).
    policy: "auto" speculates as deep as it pays, "fixed" always as deep as the drafter prefers; a request's max_depth
    wins over both; auto begins with what `outrider calibrate` measured, if it did. Default: auto, but fixed under rules
    whose text depends on the depth, so that a seed fixes the text.
    backend: "torch", "llama.cpp" (GGUF files) or "auto": llama.cpp for a GGUF file if it is installed and no dtype,
    device or bitwise passes are asked for. backend_options: of llama.cpp, a mapping or `threads=2,cache_type=q8_0`.
    ignore_generation_config: the settings of the model's generation_config.json are no defaults (end tokens stay).
    allow_plain: a drafter that cannot be loaded or does not fit the target is warned about, and the engine decodes
    plainly and says why; default: an error. on_round: called with a RoundTrace after every round.
    reuse_prefixes: a prompt that begins like an earlier text (a conversation's next turn) computes only what is new.
    memory_floor: bytes of free memory below which the engine gives up warm texts, then drafters (default 256 MiB).
    trace: a file that gets one JSON line a round (docs/traces.md).
    Raises ModelError, PairingError, UnsupportedError, OptionError.
    """
    chosen = resolve_drafter(drafter, **drafter_options)
    keeps = make_rule(rule)
    check_writable(trace, "trace")
    settings = {
        "backend": backend,
        "backend_options": backend_options,
        "dtype": dtype,
        "device": device,
        "max_rows": max_rows,
        "max_length": max_length,
        "exact": exact,
        "quantize": quantize,
        "ignore_generation_config": ignore_generation_config,
    }
    loaded = _load_target(target, settings)  # slow, so names are checked first
    wanted = ("auto" if keeps.shared_noise else "fixed") if policy is None else policy
    others = {"reuse_prefixes": reuse_prefixes, "memory_floor": memory_floor, "on_round": on_round}
    engine = _engine(loaded, chosen, keeps, wanted, allow_plain, others)
    if trace is not None:
        write_trace(engine, trace)
    return engine


def _engine(
    target: Target,
    drafter: Drafter | Mapping[str, Drafter] | None,
    rule: Rule,
    policy: str | Policy,
    allow_plain: bool,
    others: Mapping[str, Any],
) -> Engine:
    """The engine; without its drafter, if that does not fit and may be missing."""
    try:
        costs = known_costs(target, drafter)
        return Engine(target, drafter, rule=rule, policy=policy, costs=costs, **others)
    except (ModelError, UnsupportedError) as error:
        if not allow_plain:
            raise
        warnings.warn(f"decoding without drafts: {error}", OutriderWarning, stacklevel=3)
        return Engine(target, rule=rule, plain_because=str(error), **others)


def known_costs(target: Target, drafter: Drafter | Mapping[str, Drafter] | None) -> CostModel | None:
    """What `outrider calibrate` measured of this target here, or None: the automatic policy then learns as it goes."""
    found = find(target) if drafter is not None else None
    if found is None or drafter is None:
        return None
    return found.for_drafters(drafter if isinstance(drafter, Mapping) else {drafter.name: drafter})


def resolve_drafter(
    drafter: str | Drafter | Mapping[str, Drafter] | None, **options: Any
) -> Drafter | Mapping[str, Drafter] | None:
    """A drafter object from what `load` takes; a string that names no drafter but a model becomes a `model` drafter."""
    if not isinstance(drafter, str):
        if options:
            raise OptionError(f"unknown option {next(iter(options))!r}: options need a drafter given by name")
        return drafter
    name = drafter.partition(":")[0]
    if name not in available_drafters() and is_model(drafter):
        return make_drafter("model", model=drafter, **options)
    return make_drafter(drafter, **options)


def named_drafter(spec: str) -> Drafter:
    """The drafter that a spec or a model's name stands for. Raises OptionError."""
    drafter = resolve_drafter(spec)
    if not isinstance(drafter, Drafter):
        raise OptionError(f"{spec!r} is no drafter")
    return drafter


def drafters_by_name(specs: Sequence[str]) -> dict[str, Drafter]:
    """Drafters by the names that requests use: a drafter's own name, numbered if it is there twice."""
    found: dict[str, Drafter] = {}
    for spec in specs:
        drafter = named_drafter(spec)
        name, number = drafter.name, 2
        while name in found:
            name, number = f"{drafter.name}-{number}", number + 1
        found[name] = drafter
    return found


DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(load).parameters.items()}


def _load_target(target: str | Target, settings: Mapping[str, Any]) -> Target:
    if not isinstance(target, str):
        given = [name for name, value in settings.items() if value != DEFAULTS[name]]
        if given:
            raise OptionError(f"{given[0]} cannot be set any more: the target is loaded; give its name instead")
        return target
    return load_target(target, **settings)
