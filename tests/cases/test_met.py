"""MET: counters that add up."""

import pytest

from helpers import World, run, script
from helpers_drafters import Oracle, chosen_tree
from helpers_reference import decode
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.model import ModelDrafter
from outrider.policy.fixed import FixedPolicy
from outrider.testing import FunctionDrafter, FunctionTarget

WORLD = World(seed=131)


def test_met_1_the_bonus_token_is_not_an_accepted_draft() -> None:
    stats = run(Engine(WORLD.target(), ModelDrafter(WORLD.target())), [[1]], max_new_tokens=40, max_depth=3)[0].stats
    assert stats.acceptance == 1.0
    assert (stats.rounds, stats.proposed, stats.accepted, stats.tokens_per_round) == (10, 30, 30, 4.0)


def test_met_2_only_what_was_delivered_counts() -> None:
    """The round [d1, d2, END, d4, d5, bonus] delivers three tokens."""
    line = [3, 4, 9, 5, 6, 7]
    engine = Engine(FunctionTarget(script({(1,): line}, 10), 10, [9]), FunctionDrafter(lambda tokens, depth: line[:5]))
    completion = run(engine, [[1]], max_depth=5)[0]
    assert completion.token_ids == (3, 4, 9)
    stats = completion.stats
    assert (stats.rounds, stats.proposed, stats.accepted, stats.delivered) == (1, 5, 3, 3)


def test_met_3_rates_by_position() -> None:
    """Right at the first two places, wrong at the third, four drafted, ten rounds: three tokens a round."""
    drafter = Oracle(WORLD, wrong=lambda depth: depth == 3)
    stats = run(Engine(WORLD.target(), drafter), [[1]], max_new_tokens=35, max_depth=4)[0].stats
    assert stats.accepted_per_position[:2] == pytest.approx((1.0, 1.0), abs=0.1)
    engine = Engine(WORLD.target(), drafter)
    handle = engine.submit([1], max_new_tokens=200, max_depth=4)
    while handle.row.tally.rounds < 10:
        engine.step()
    handle.cancel()
    stats = handle.completion.stats
    assert stats.accepted_per_position == (1.0, 1.0, 0.0, 0.0)
    assert (stats.tokens_per_round, stats.proposed, stats.accepted, stats.delivered) == (3.0, 40, 20, 30)


def test_met_4_methods_compare_by_tokens_per_pass() -> None:
    """Chains of other depths, lookup and a tree: the same figures mean the same, trees counted by the kept path."""
    plain = decode(WORLD.target_logits, [1], max_new_tokens=60)[0]
    methods = {
        "lookup": LookupDrafter(),
        "model": ModelDrafter(WORLD.draft()),
        "tree": FunctionDrafter(chosen_tree(WORLD, 2, 3)),
    }
    for drafter in methods.values():
        target = WORLD.target()
        engine = Engine(target, drafter, policy=FixedPolicy(drafter.name, 5, 20))
        completion = run(engine, [[1]], max_new_tokens=60)[0]
        stats = completion.stats
        assert completion.token_ids == plain
        assert stats.rounds == target.num_passes
        assert stats.tokens_per_round == pytest.approx(60 / target.num_passes)
        assert stats.proposed == target.num_scored - target.num_passes
        assert sum(stats.accepted_per_position) == pytest.approx(stats.accepted / stats.rounds)
        assert len(stats.accepted_per_position) <= 5
