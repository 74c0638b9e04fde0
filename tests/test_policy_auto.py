"""The automatic policy in simulated worlds whose costs and survival are known: never far from the best fixed depth."""

import random

import pytest

from outrider.policy.auto import AutoPolicy, DrafterShape
from outrider.policy.base import PlanView
from outrider.policy.costs import PassCost
from outrider.types import PhaseSeconds, RoundStats, RowRound


class World:
    """A pass of n nodes takes 1 + growth (n - 1), a drafted token `cost`, a drafted token survives with `chance`."""

    def __init__(self, chance: float, cost: float, growth: float, noise: float = 0.05, seed: int = 1) -> None:
        self.chance, self.cost, self.growth, self.noise = chance, cost, growth, noise
        self.random = random.Random(seed)

    def round(self, depth: int) -> tuple[int, PhaseSeconds]:
        accepted = 0
        while accepted < depth and self.random.random() < self.chance:
            accepted += 1
        jitter = 1 + self.noise * self.random.random()
        score = (1 + self.growth * depth) * jitter
        return accepted, PhaseSeconds(draft=self.cost * depth, score=score, accept=0.01, rest=0.01)

    def speed(self, plans, num_tokens: int, observe=None, row: int = 0) -> float:
        written, seconds = 0, 0.0
        while written < num_tokens:
            plan = plans(written)
            accepted, spent = self.round(plan.max_depth)
            written += accepted + 1
            seconds += spent.total
            if observe:
                figures = RowRound(
                    row, plan.drafter, plan.max_depth, accepted, accepted + 1, plan.max_depth, 100 + written
                )
                observe(RoundStats((figures,), spent, 1 + plan.max_depth))
        return written / seconds


class Fixed:
    def __init__(self, depth: int) -> None:
        self.max_depth, self.drafter = depth, "d"


WORLDS = [(0.9, 0.02, 0.03), (0.7, 0.1, 0.05), (0.5, 0.3, 0.1), (0.1, 0.02, 0.2), (0.0, 0.5, 0.3), (0.95, 0.01, 0.01)]


@pytest.mark.parametrize(("chance", "cost", "growth"), WORLDS)
def test_close_to_the_best_fixed_depth_and_not_slower_than_plain(chance: float, cost: float, growth: float) -> None:
    policy = AutoPolicy({"d": DrafterShape()})

    def plan(written: int):
        return policy.plan([PlanView(0, 100 + written, written, 1000, 0.0)])[0]

    found = World(chance, cost, growth).speed(plan, 1500, policy.observe)
    fixed = [World(chance, cost, growth).speed(lambda _, depth=depth: Fixed(depth), 1500) for depth in range(17)]
    assert found >= 0.95 * fixed[0]
    assert found >= 0.93 * max(fixed)


def test_depth_follows_a_text_that_changes() -> None:
    policy, world, depths = AutoPolicy({"d": DrafterShape()}), World(0.95, 0.02, 0.03), []
    for chance in (0.95, 0.0, 0.95):
        world.chance = chance
        world.speed(
            lambda written: depths.append(policy.plan([PlanView(0, 100, written, 1000, 0.0)])[0]) or depths[-1],
            400,
            policy.observe,
        )
        depths.append(None)
    pieces = [[]]
    for depth in depths:
        pieces[-1].append(depth.max_depth) if depth else pieces.append([])
    assert pieces[0][-1] >= 6
    assert sum(pieces[1][-50:]) <= 25
    assert pieces[2][-1] >= 6


def test_requests_limits_are_kept() -> None:
    policy = AutoPolicy({"d": DrafterShape()})
    views = [
        PlanView(0, 10, 0, 1000, 0.0, wanted_depth=0),
        PlanView(1, 10, 0, 2, 0.0),
        PlanView(2, 10, 0, 1000, 0.0, wanted_depth=5),
    ]
    plans = policy.plan(views)
    assert plans[0].max_depth == 0
    assert plans[1].max_depth <= 2
    assert plans[2].max_depth <= 5


def test_pass_cost_learns_the_line_and_survives_a_stall() -> None:
    cost = PassCost()
    for width in [1, 9, 4, 1, 17, 2] * 8:
        cost.learn(width, 0.1 + 0.01 * width)
    assert cost.of(12) == pytest.approx(0.22, rel=0.03)
    cost.learn(5, 30.0)
    assert cost.of(12) < 0.5
