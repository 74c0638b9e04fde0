"""From names to a server's parts: target, drafters, engine, observers."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from outrider.acceptance import Rule
from outrider.api import drafters_by_name, known_costs
from outrider.engine.engine import Engine
from outrider.files import check_writable
from outrider.policy.base import Policy
from outrider.server.app import Parts
from outrider.server.config import ServerConfig
from outrider.server.feed import RoundFeed
from outrider.server.logs import log
from outrider.server.metrics import Metrics
from outrider.server.runner import EngineThread
from outrider.server.translate import Facts, Translator
from outrider.targets.loading import load_target
from outrider.traces.file import TraceFile

MakeEngine = Callable[[], Engine]


def make_parts(
    make_engine: MakeEngine,
    drafters: Sequence[str],
    config: ServerConfig,
    *,
    target_name: str,
    show_text: bool = False,
    trace: str | None = None,
    trace_prompts: bool = False,
) -> Parts:
    """A server's parts around the engine that `make_engine()` makes; its thread is not started yet.

    drafters: names that requests may ask for. show_text: whether those who watch the rounds see the texts. trace: a
    file that gets one JSON line a round. trace_prompts: with the prompts. Raises OptionError.
    """
    name = config.model_name or target_name
    metrics = Metrics(name)
    engine = make_engine()
    engine.attach(metrics)
    feed = RoundFeed(engine, texts=show_text)
    engine.attach(feed)
    if trace is not None:
        engine.attach(TraceFile(trace, engine, prompts=trace_prompts, on_failure=_trace_failed))
    runner = EngineThread(engine, max_waiting=config.max_waiting, observer=metrics)
    metrics.watch(lambda: runner.num_running, lambda: runner.num_waiting, lambda: _cache_use(engine))
    return Parts(runner, Translator(Facts(engine, config, name, tuple(drafters))), metrics, config, feed)


def load_parts(
    specs: Sequence[str],
    rule: Rule,
    config: ServerConfig,
    *,
    target: str,
    max_rows: int = 8,
    show_text: bool = False,
    trace: str | None = None,
    trace_prompts: bool = False,
    policy: str | Policy | None = None,
    **target_options: Any,
) -> Parts:
    """A server's parts for a model by name. policy and target_options (dtype, device, backend, ...): as of `load`.

    Raises OptionError, ModelError, PairingError, UnsupportedError.
    """
    drafters = drafters_by_name(specs)
    check_writable(trace, "trace")
    loaded = load_target(target, max_rows=max_rows, **target_options)

    watching: dict[str, Any] = {"show_text": show_text, "trace": trace, "trace_prompts": trace_prompts}

    def make_engine() -> Engine:
        wanted = policy or ("auto" if rule.shared_noise else "fixed")  # as `load` chooses
        costs = known_costs(loaded, drafters)
        floor = config.memory_floor_mib << 20
        limits: dict[str, Any] = {"reuse_prefixes": not config.no_prefix_reuse, "memory_floor": floor}
        return Engine(loaded, drafters, rule=rule, policy=wanted, costs=costs, **limits)

    return make_parts(make_engine, tuple(drafters), config, target_name=target, **watching)


def _trace_failed(message: str) -> None:
    log("trace_failed", level=logging.ERROR, fields={"message": message})


def _cache_use(engine: Engine) -> float:
    info = engine.target.info
    used = sum(engine.target.length(row) for row in range(info.max_rows))
    return used / (info.max_rows * info.max_length)
