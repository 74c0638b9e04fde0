"""The predicted best, run for real: measured beside predicted, and the texts compared with plain decoding's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.planner.replay import PLAIN, Setting
from outrider.planner.traffic import Sample
from outrider.policy.base import Policy
from outrider.policy.cost_model import CostModel
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.params import NEUTRAL
from outrider.targets.base import Target

OTHER_PACE = 1.25


@dataclass
class Verified:
    """A setting's real runs. seconds: of decoding, prefill left out. differs: ids of samples with another text.

    speeds: tokens per second by what was run together.
    """

    name: str
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    predicted: float | None = None  # tokens per second
    differs: list[str] = field(default_factory=list[str])
    speeds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def add(self, name: str, run: Mapping[str, Any]) -> None:
        tokens = sum(map(len, run["texts"]))
        self.tokens += tokens
        self.rounds += run["rounds"]
        self.seconds += run["seconds"]
        self.speeds[name] = tokens / run["seconds"] if run["seconds"] > 0 else 0.0


def pace_note(verified: Sequence[Verified]) -> str:
    """What to do where plain decoding runs at another speed than was calibrated; empty where it does not."""
    plain = verified[0] if verified else None
    if plain is None or not plain.predicted or not plain.speed:
        return ""
    pace = plain.speed / plain.predicted
    if 1 / OTHER_PACE <= pace <= OTHER_PACE:
        return ""
    return (
        f"plain decoding ran at {pace:.2f} times the predicted speed: the machine was busier or idler when it was "
        "calibrated; `outrider calibrate --fresh`, then plan again"
    )


@dataclass(frozen=True)
class Candidate:
    """What is run: a name and the policy that makes it so."""

    name: str
    policy: str | Policy
    predicted: float | None = None


def candidates(settings: Sequence[Setting], predicted: Mapping[Setting, float]) -> list[Candidate]:
    """Plain first, then these settings, then the automatic policy."""
    named = [
        Candidate(str(s), FixedPolicy(s.drafter, s.max_depth, max(s.max_nodes, s.max_depth)), predicted[s])
        for s in [PLAIN, *[s for s in settings if s != PLAIN]]
    ]
    return [*named, Candidate("auto", "auto")]


def groups_of(samples: Sequence[Sample], count: int, size: int) -> list[list[Sample]]:
    """About `count` samples in groups of `size` that run together; smaller only if there are not enough samples."""
    size = max(1, min(size, len(samples)))
    chosen = samples[: max(size, count - count % size)]
    return [list(chosen[start : start + size]) for start in range(0, len(chosen) - size + 1, size)]


def verify(
    target: Target,
    drafters: Mapping[str, Drafter],
    costs: CostModel,
    chosen: Sequence[Candidate],
    groups: Sequence[Sequence[Sample]],
    *,
    max_new_tokens: int,
    once: Callable[[str, Callable[[], Any]], Any],
) -> list[Verified]:
    """Every candidate on every group, interleaved. once(name, make): see Work. Plain must be the first candidate."""
    found = {one.name: Verified(one.name, predicted=one.predicted) for one in chosen}
    engines = {one.name: Engine(target, drafters, policy=one.policy, costs=costs) for one in chosen}
    for turn, group in enumerate(groups):
        texts: dict[str, list[list[int]]] = {}
        name = "+".join(sample.id for sample in group)
        for place in range(len(chosen)):
            one = chosen[(place + turn) % len(chosen)]
            engine = engines[one.name]
            run = once(f"run {one.name} {name}", lambda e=engine, g=group: _run(e, g, max_new_tokens))
            found[one.name].add(name, run)
            texts[one.name] = run["texts"]
        for candidate, written in texts.items():
            pairs = zip(group, written, texts[chosen[0].name], strict=True)
            found[candidate].differs += [sample.id for sample, text, plain in pairs if text != plain]
    return list(found.values())


def _run(engine: Engine, group: Sequence[Sample], max_new_tokens: int) -> dict[str, Any]:
    """One greedy run of requests at the same time; plain values. The model's end tokens end them.

    The request that ran longest took part in (nearly) every round, so its seconds are those of all.
    """
    settings = {**NEUTRAL, "max_new_tokens": max_new_tokens}
    done = engine.generate_batch([list(sample.prompt) for sample in group], **settings)
    for one in done:
        if one.error is not None:
            raise one.error
    stats = [one.stats for one in done]
    seconds = max(one.seconds.total - one.seconds.prefill for one in stats)
    return {"texts": [list(one.token_ids) for one in done], "rounds": max(s.rounds for s in stats), "seconds": seconds}
