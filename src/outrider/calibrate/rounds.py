"""Whole rounds of a real engine, noted one by one: what drafting costs, what a round costs beside its passes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.policy.base import PlanView
from outrider.policy.cost_model import DraftCost
from outrider.policy.fixed import FixedPolicy
from outrider.sampling.params import NEUTRAL
from outrider.targets.base import Target
from outrider.types import Plan, RoundStats

TIMED: dict[str, Any] = {**NEUTRAL, "ignore_eos": True}  # nothing costs time or ends a text


@dataclass
class Recorder:
    """Plans as another policy does, and keeps what came of every round."""

    inner: FixedPolicy
    rounds: list[RoundStats] = field(default_factory=list[RoundStats])

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        return self.inner.plan(views)

    def observe(self, stats: RoundStats) -> None:
        self.rounds.append(stats)

    def end(self, row: int) -> None:
        """Nothing to forget."""


def record(
    target: Target,
    drafters: Mapping[str, Drafter],
    plan: FixedPolicy,
    prompts: Sequence[Sequence[int]],
    *,
    num_rounds: int,
    seconds: float,
) -> list[RoundStats]:
    """At most so many rounds over these prompts at once, or as many as fit into the time; more than prompts anyway."""
    recorder = Recorder(plan)
    engine = Engine(target, drafters, policy=recorder)
    budget = (plan.max_depth + 1) * (num_rounds + 2)
    handles = [engine.submit(list(prompt), **TIMED, max_new_tokens=budget) for prompt in prompts]
    end = None
    try:
        while not all(handle.done for handle in handles) and len(recorder.rounds) < num_rounds:
            engine.step()
            end = end or (time.perf_counter() + seconds if recorder.rounds else None)
            if len(recorder.rounds) > len(prompts) and end and time.perf_counter() > end:
                break
    finally:
        for handle in handles:
            handle.cancel()
    return recorder.rounds


def draft_cost(rounds: Sequence[RoundStats], name: str, drafter: Drafter, num_prompt: int) -> DraftCost:
    """The drafter's costs from rounds of one row that asked it; the first one had the prompt to read."""
    asked = [one for stats in rounds for one in stats.asked if one.drafter == name]
    if not asked:
        return DraftCost(drafter.free)
    later = asked[1:] or asked
    if drafter.free:
        return DraftCost(True, ask=median(one.seconds / one.num_rows for one in later))
    levels = [one.seconds / one.depth for one in later if one.depth]
    level = median(levels) if levels else 0.0
    ask = median([one.seconds for one in later if not one.depth] or [0.0])
    return DraftCost(False, ask, level, max(0.0, asked[0].seconds - level * asked[0].depth) / max(1, num_prompt))


def overhead(rounds: Sequence[RoundStats]) -> float:
    """Seconds of a round beside drafting and scoring."""
    return median([stats.seconds.accept + stats.seconds.rest for stats in rounds] or [0.0])
