"""Observers and policies that raise or talk nonsense disturb nobody: texts are as ever, and a warning says why."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from helpers import World, run, tokens_of
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.errors import OutriderWarning
from outrider.policy.base import PlanView
from outrider.policy.fixed import FixedPolicy
from outrider.types import Plan, RoundStats

WORLD = World(seed=17)
PROMPTS = [[1, 2, 1, 2, 1], [3]]
EXPECTED = tokens_of(run(Engine(WORLD.target()), PROMPTS, max_new_tokens=20))


def test_an_observer_that_raises_is_warned_about_and_asked_again() -> None:
    seen: list[int] = []

    def observer(trace: Any) -> None:
        seen.append(trace.index)
        raise ValueError("disk full")

    with pytest.warns(OutriderWarning, match=r"on_round observer failed.*disk full"):
        found = run(Engine(WORLD.target(), LookupDrafter(), on_round=observer), PROMPTS, max_new_tokens=20)
    assert tokens_of(found) == EXPECTED
    assert seen == list(range(len(seen)))
    assert len(seen) == max(c.stats.rounds for c in found)
    assert all(c.stats.seconds.total > 0 for c in found)


class Bad(FixedPolicy):
    """Like a fixed policy, but for one method."""

    def __init__(self, **methods: Callable[..., Any]) -> None:
        super().__init__("model", 3)
        for name, method in methods.items():
            object.__setattr__(self, name, method)


def _raise(*_: Any) -> Any:
    raise KeyError("no such row")


@pytest.mark.parametrize(
    "plan",
    [
        _raise,
        lambda views: [],
        lambda views: None,
        lambda views: [Plan("model", 3, 3)] * (len(views) + 1),
        lambda views: ["deep"] * len(views),
        lambda views: [Plan("model", "3", 3)] * len(views),
    ],
    ids=["raises", "empty", "none", "too-many", "words", "a word as depth"],
)
def test_a_policy_that_cannot_plan_means_plain_decoding(plan: Callable[[Sequence[PlanView]], Any]) -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()), policy=Bad(plan=plan))
    with pytest.warns(OutriderWarning, match="the policy failed"):
        found = run(engine, PROMPTS, max_new_tokens=20)
    assert tokens_of(found) == EXPECTED
    assert all(c.stats.method == "plain" for c in found)


@pytest.mark.parametrize("method", ["observe", "end"])
def test_a_policy_that_cannot_learn_or_forget_still_plans(method: str) -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()), policy=Bad(**{method: _raise}))
    with pytest.warns(OutriderWarning, match="the policy failed"):
        found = run(engine, PROMPTS, max_new_tokens=20)
    assert tokens_of(found) == EXPECTED
    assert all(c.stats.accepted > 0 for c in found)


@pytest.mark.parametrize("depth", [-3, 10_000])
def test_depths_beyond_reason_are_cut(depth: int) -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()), policy=FixedPolicyOf(Plan("model", depth, depth)))
    found = run(engine, PROMPTS, max_new_tokens=20)
    assert tokens_of(found) == EXPECTED
    assert all(0 <= c.stats.max_proposed <= 19 for c in found)


def test_a_plan_with_an_unknown_drafter_ends_its_request_by_name() -> None:
    engine = Engine(WORLD.target(), ModelDrafter(WORLD.draft()), policy=FixedPolicyOf(Plan("modl", 2, 2)))
    found = run(engine, PROMPTS, max_new_tokens=5, errors=True)
    assert all("'modl'" in str(c.error) for c in found)


class FixedPolicyOf:
    """Always this plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, views: Sequence[PlanView]) -> list[Plan]:
        return [self._plan] * len(views)

    def observe(self, stats: RoundStats) -> None: ...

    def end(self, row: int) -> None: ...
