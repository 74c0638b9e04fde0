"""Is the cost model true? Predicted against measured seconds of whole rounds, on settings that it was not made from.

The model is made from passes over one text, plain rounds, and drafts of one depth. Here real engines run: several
depths, numbers of requests and lengths of context, each plan in three of these places in turn.

A machine that others use runs faster and slower by the minute, which no model foretells. Therefore plain rounds of one
short text are timed before and after every setting; measured in those, a setting's error is the model's own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from outrider.calibrate.rounds import record
from outrider.calibrate.run import sample_text
from outrider.drafters.base import Drafter
from outrider.policy.cost_model import CostModel
from outrider.policy.fixed import FixedPolicy
from outrider.targets.base import Target
from outrider.types import RoundStats

NUM_ROUNDS = 12
NUM_BESIDE, BESIDE_TOKENS = 9, 48  # plain rounds, and the length of their text
DEPTHS = (2, 5, 8)
PLACES = ((1, 48), (3, 120), (1, 400), (2, 240), (5, 80), (1, 180))  # (requests at a time, tokens of each prompt)
PLACES_EACH = 3


@dataclass(frozen=True)
class Checked:
    """One setting: seconds of its median round as predicted and as measured, and the mean width of its passes.

    pace: seconds of the plain rounds timed beside it, over what the model says of those.
    """

    setting: str
    num_rows: int
    context: float
    num_nodes: float
    predicted: float
    measured: float
    pace: float = 1.0

    @property
    def error(self) -> float:
        """Relative; above 0: the model promised too long a round."""
        return self.predicted / self.measured - 1

    @property
    def own_error(self) -> float:
        """The error that is left if both are counted in plain rounds, those timed beside and those predicted."""
        return self.predicted * self.pace / self.measured - 1


def check(
    target: Target,
    drafters: Mapping[str, Drafter],
    costs: CostModel,
    *,
    seconds: float = 20.0,
    on_step: Callable[[str], None] = lambda words: None,
) -> list[Checked]:
    """Rounds of plain decoding and of every drafter. seconds: for all of them, without reading the prompts."""
    text = sample_text(target)
    cells = _cells(target, [FixedPolicy("none", 0), *(FixedPolicy(n, depth) for n in drafters for depth in DEPTHS)])
    found, before = list[Checked](), _pace(target, text, costs)
    for plan, num_rows, size in cells:
        on_step(f"checking {len(found) + 1} of {len(cells)}: {_name(plan)}, {num_rows} rows, {size} tokens")
        prompts = [[text[(row + i) % len(text)] for i in range(size)] for row in range(num_rows)]
        rounds = record(target, drafters, plan, prompts, num_rounds=NUM_ROUNDS, seconds=seconds / len(cells))
        after = _pace(target, text, costs)
        if settled := [stats for stats in rounds[1:] if len(stats.rows) == num_rows]:
            found.append(replace(_compare(plan, num_rows, settled, costs), pace=(before + after) / 2))
        before = after
    return found


def _pace(target: Target, text: Sequence[int], costs: CostModel) -> float:
    """Seconds of plain rounds now, over what the model says of them."""
    size = min(BESIDE_TOKENS, target.info.max_length - NUM_BESIDE - 3)
    prompt = [text[i % len(text)] for i in range(size)]
    rounds = record(target, {}, FixedPolicy("none", 0), [prompt], num_rounds=NUM_BESIDE, seconds=math.inf)
    beside = _compare(FixedPolicy("none", 0), 1, rounds[1:], costs)
    return beside.measured / beside.predicted


def _cells(target: Target, plans: Sequence[FixedPolicy]) -> list[tuple[FixedPolicy, int, int]]:
    """(plan, rows, tokens) that the target has room for."""
    longest = target.info.max_length - (max(DEPTHS) + 1) * (NUM_ROUNDS + 3)
    places = [(rows, min(size, longest)) for rows, size in PLACES if rows <= target.info.max_rows]
    places = list(dict.fromkeys(places))
    few = min(PLACES_EACH, len(places))
    return [
        (plan, *places[(few * number + turn) % len(places)]) for number, plan in enumerate(plans) for turn in range(few)
    ]


def mean_error(checked: Sequence[Checked], *, own: bool = False) -> float:
    """Mean absolute relative error over the settings. own: see Checked.own_error."""
    return mean(abs(one.own_error if own else one.error) for one in checked)


def _name(plan: FixedPolicy) -> str:
    return "plain" if plan.drafter == "none" else f"{plan.drafter}, depth {plan.max_depth}"


def _compare(plan: FixedPolicy, num_rows: int, rounds: list[RoundStats], costs: CostModel) -> Checked:
    ratios = [(_predicted(stats, costs), stats.seconds.total - stats.seconds.prefill) for stats in rounds]
    nodes = sum(stats.num_nodes for stats in rounds) / len(rounds)
    context = sum(_context(stats) for stats in rounds) / len(rounds)
    predicted, measured = (median(values) for values in zip(*ratios, strict=True))
    return Checked(_name(plan), num_rows, context, nodes, predicted, measured)


def _predicted(stats: RoundStats, costs: CostModel) -> float:
    drafting = sum(costs.draft_seconds(one.drafter, one.depth, one.num_rows) for one in stats.asked)
    num_rows = len(stats.rows)
    return costs.pass_seconds(stats.num_nodes, num_rows, _context(stats)) + drafting + costs.rest_seconds(num_rows)


def _context(stats: RoundStats) -> float:
    return sum(row.context_length for row in stats.rows) / len(stats.rows)
