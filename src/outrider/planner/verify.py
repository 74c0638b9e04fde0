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


@dataclass
class Verified:
    """A setting's real runs. seconds: of decoding, prefill left out. differs: ids of samples with another text."""

    name: str
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    predicted: float | None = None  # tokens per second
    differs: list[str] = field(default_factory=list[str])

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def add(self, run: Mapping[str, Any]) -> None:
        self.tokens += len(run["token_ids"])
        self.rounds += run["rounds"]
        self.seconds += run["seconds"]


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


def verify(
    target: Target,
    drafters: Mapping[str, Drafter],
    costs: CostModel,
    chosen: Sequence[Candidate],
    samples: Sequence[Sample],
    *,
    max_new_tokens: int,
    once: Callable[[str, Callable[[], Any]], Any],
) -> list[Verified]:
    """Every candidate on every sample, interleaved. once(name, make): see Work. Plain must be the first candidate."""
    found = {one.name: Verified(one.name, predicted=one.predicted) for one in chosen}
    engines = {one.name: Engine(target, drafters, policy=one.policy, costs=costs) for one in chosen}
    for turn, sample in enumerate(samples):
        texts: dict[str, list[int]] = {}
        for place in range(len(chosen)):
            one = chosen[(place + turn) % len(chosen)]
            engine = engines[one.name]
            run = once(f"run {one.name} {sample.id}", lambda e=engine, s=sample: _run(e, s, max_new_tokens))
            found[one.name].add(run)
            texts[one.name] = run["token_ids"]
        for name, text in texts.items():
            if text != texts[chosen[0].name]:
                found[name].differs.append(sample.id)
    return list(found.values())


def _run(engine: Engine, sample: Sample, max_new_tokens: int) -> dict[str, Any]:
    """One greedy run; plain values. The model's end tokens end it, its other settings are left out."""
    settings = {**NEUTRAL, "max_new_tokens": max_new_tokens}
    stats = (done := engine.generate(list(sample.prompt), **settings)).stats
    seconds = stats.seconds.total - stats.seconds.prefill
    return {"token_ids": list(done.token_ids), "rounds": stats.rounds, "seconds": seconds}
