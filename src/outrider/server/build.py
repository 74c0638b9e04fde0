"""From names to a server's parts: target, drafters, engine, observers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from outrider.acceptance import Rule
from outrider.api import resolve_drafter
from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.engine.trace import RoundTrace
from outrider.errors import OptionError
from outrider.server.app import Parts
from outrider.server.config import ServerConfig
from outrider.server.feed import RoundFeed
from outrider.server.metrics import Metrics
from outrider.server.runner import EngineThread
from outrider.server.translate import Facts, Translator
from outrider.targets.loading import load_target

MakeEngine = Callable[[Callable[[RoundTrace], None]], Engine]


def make_parts(
    make_engine: MakeEngine,
    drafters: Sequence[str],
    config: ServerConfig,
    *,
    target_name: str,
    watch: bool = False,
    trace: TextIO | None = None,
) -> Parts:
    """A server's parts around the engine that `make_engine(on_round)` makes; its thread is not started yet.

    drafters: names that requests may ask for. watch: whether rounds can be followed at /rounds. trace: a file that
    gets one JSON line a round.
    """
    name = config.model_name or target_name
    metrics, feed = Metrics(name), RoundFeed() if watch else None
    observers: list[Callable[[RoundTrace], None]] = [metrics.observe_round]
    if feed is not None:
        observers.append(feed.publish)
    if trace is not None:
        observers.append(lambda one: _write(trace, one))

    def on_round(one: RoundTrace) -> None:
        for observer in observers:
            observer(one)

    engine = make_engine(on_round)
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
    watch: bool = False,
    trace: str | None = None,
    policy: str | None = None,
    **target_options: Any,
) -> Parts:
    """A server's parts for a model by name. policy and target_options (dtype, device, backend, ...): as of `load`.

    Raises OptionError, ModelError, PairingError, UnsupportedError.
    """
    drafters = make_drafters(specs)
    file = open_trace(trace)
    loaded = load_target(target, max_rows=max_rows, **target_options)

    def make_engine(on_round: Callable[[RoundTrace], None]) -> Engine:
        wanted = policy or ("auto" if rule.shared_noise else "fixed")  # as `load` chooses
        return Engine(loaded, drafters, rule=rule, policy=wanted, reuse_prefixes=True, on_round=on_round)

    return make_parts(make_engine, tuple(drafters), config, target_name=target, watch=watch, trace=file)


def make_drafters(specs: Sequence[str]) -> dict[str, Drafter]:
    """Drafters by the names that requests use: a drafter's own name, numbered if it is there twice."""
    found: dict[str, Drafter] = {}
    for spec in specs:
        drafter = resolve_drafter(spec)
        if not isinstance(drafter, Drafter):
            raise OptionError(f"{spec!r} is no drafter")
        name, number = drafter.name, 2
        while name in found:
            name, number = f"{drafter.name}-{number}", number + 1
        found[name] = drafter
    return found


def open_trace(path: str | None) -> TextIO | None:
    """The file that rounds are appended to. Raises OptionError."""
    if path is None:
        return None
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write the trace to {path!r}: {error.strerror}") from error


def _write(file: TextIO, trace: RoundTrace) -> None:
    file.write(json.dumps(trace.to_dict(), ensure_ascii=False) + "\n")
    file.flush()


def _cache_use(engine: Engine) -> float:
    info = engine.target.info
    used = sum(engine.target.length(row) for row in range(info.max_rows))
    return used / (info.max_rows * info.max_length)
