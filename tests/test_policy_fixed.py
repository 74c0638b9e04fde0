"""The fixed policy: as deep as each drafter prefers, and what a request asks for."""

import pytest

from helpers_drafters import World
from outrider import Engine
from outrider.drafters.lookup import LookupDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.errors import OptionError
from outrider.policy.base import PlanView
from outrider.policy.fixed import FixedPolicy
from outrider.policy.make import make_policy


def view(**wanted: object) -> PlanView:
    return PlanView(row=0, context_length=9, num_written=0, room=40, temperature=0.0, **wanted)  # pyright: ignore


def test_each_drafter_that_a_request_names_drafts_as_deep_as_itself_prefers() -> None:
    lookup, suffix = LookupDrafter(), SuffixDrafter()
    policy = make_policy("fixed", {"lookup": lookup, "suffix": suffix})
    plans = policy.plan([view(), view(wanted_drafter="suffix"), view(wanted_drafter="suffix", wanted_depth=3)])
    assert [(plan.drafter, plan.max_depth) for plan in plans] == [
        ("lookup", lookup.preferred_depth),
        ("suffix", suffix.preferred_depth),
        ("suffix", 3),
    ]
    assert plans[1].max_nodes == suffix.preferred_nodes
    assert lookup.preferred_depth != suffix.preferred_depth


def test_a_request_may_name_a_drafter_that_the_policy_does_not_know() -> None:
    (plan,) = FixedPolicy("lookup", 5).plan([view(wanted_drafter="none")])
    assert plan.drafter == "none"
    engine = Engine(World(11, seed=5).target(()), {"lookup": LookupDrafter(), "suffix": SuffixDrafter()})
    plain = engine.generate([1, 2, 3], max_new_tokens=20, max_depth=0)
    assert engine.generate([1, 2, 3], max_new_tokens=20).token_ids == plain.token_ids


@pytest.mark.parametrize("bad", [-1, True, 1.5])
def test_a_depth_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(OptionError, match="whole number"):
        FixedPolicy("lookup", bad)  # pyright: ignore


def test_fewer_nodes_than_levels_are_obeyed() -> None:
    assert [plan.max_nodes for plan in FixedPolicy("lookup", 8, 4).plan([view(), view(wanted_depth=6)])] == [4, 6]
    engine = Engine(World(11, seed=5).target(()), LookupDrafter(), policy=FixedPolicy("lookup", 8, 2))
    seen = engine.generate([1, 2, 3, 1, 2, 3, 1], max_new_tokens=20).stats
    assert 0 < seen.max_proposed <= 2
