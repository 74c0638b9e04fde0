"""Policies by name."""

from collections.abc import Mapping
from dataclasses import replace

from outrider.drafters.base import Drafter
from outrider.errors import OptionError, did_you_mean
from outrider.policy.auto import AutoPolicy
from outrider.policy.base import Policy
from outrider.policy.cost_model import CostModel
from outrider.policy.fixed import FixedPolicy
from outrider.policy.records import DrafterShape

POLICIES = ("auto", "fixed")


def make_policy(policy: str | Policy | None, drafters: Mapping[str, Drafter], costs: CostModel | None = None) -> Policy:
    """The policy of that name over these drafters (None: "fixed"); a ready one as it is. Raises OptionError.

    costs: what rounds cost here, if it was measured; "auto" then begins with that knowledge.
    """
    if policy is None:
        return make_policy("fixed", drafters)
    if not isinstance(policy, str):
        if not all(callable(getattr(policy, method, None)) for method in ("plan", "observe", "end")):
            raise OptionError(f"policy must be {' or '.join(map(repr, POLICIES))} or a Policy, not {policy!r}")
        return policy
    if policy not in POLICIES:
        raise OptionError(f"unknown policy {policy!r}{did_you_mean(policy, POLICIES)}")
    if policy == "auto":
        return AutoPolicy({name: _shape(drafter) for name, drafter in drafters.items()}, costs)
    if not drafters:
        return FixedPolicy("none", 0)
    others = preferred(drafters)
    first = others.pop(next(iter(drafters)))
    return replace(first, others=others)


def preferred(drafters: Mapping[str, Drafter]) -> dict[str, FixedPolicy]:
    """By drafter: as deep and wide as it prefers."""
    return {name: FixedPolicy(name, one.preferred_depth, one.preferred_nodes) for name, one in drafters.items()}


def _shape(drafter: Drafter) -> DrafterShape:
    return DrafterShape(max(1.0, drafter.preferred_nodes / max(1, drafter.preferred_depth)), free=drafter.free)
