"""Is the cost model true? Predicted against measured seconds of whole rounds, on settings that it was not made from.

The model is made from passes over one text, plain rounds, and drafts of one depth. Here real engines run: several
depths, numbers of requests and lengths of context, each plan in three of these places in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from outrider.calibrate.rounds import record
from outrider.calibrate.run import sample_text
from outrider.drafters.base import Drafter
from outrider.policy.cost_model import CostModel
from outrider.policy.fixed import FixedPolicy
from outrider.targets.base import Target
from outrider.types import RoundStats

NUM_ROUNDS = 12
DEPTHS = (2, 5, 8)
PLACES = ((1, 48), (3, 120), (1, 400), (2, 240), (5, 80), (1, 180))  # (requests at a time, tokens of each prompt)
PLACES_EACH = 3


@dataclass(frozen=True)
class Checked:
    """One setting: seconds of its median round as predicted and as measured, and the mean width of its passes."""

    setting: str
    num_rows: int
    context: float
    num_nodes: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative; above 0: the model promised too long a round."""
        return self.predicted / self.measured - 1


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
    found: list[Checked] = []
    for plan, num_rows, size in cells:
        on_step(f"checking {len(found) + 1} of {len(cells)}: {_name(plan)}, {num_rows} rows, {size} tokens")
        prompts = [[text[(row + i) % len(text)] for i in range(size)] for row in range(num_rows)]
        rounds = record(target, drafters, plan, prompts, num_rounds=NUM_ROUNDS, seconds=seconds / len(cells))
        if settled := [stats for stats in rounds[1:] if len(stats.rows) == num_rows]:
            found.append(_compare(plan, num_rows, settled, costs))
    return found


def _cells(target: Target, plans: Sequence[FixedPolicy]) -> list[tuple[FixedPolicy, int, int]]:
    """(plan, rows, tokens) that the target has room for."""
    longest = target.info.max_length - (max(DEPTHS) + 1) * (NUM_ROUNDS + 3)
    places = [(rows, min(size, longest)) for rows, size in PLACES if rows <= target.info.max_rows]
    places = list(dict.fromkeys(places))
    few = min(PLACES_EACH, len(places))
    return [
        (plan, *places[(few * number + turn) % len(places)]) for number, plan in enumerate(plans) for turn in range(few)
    ]


def mean_error(checked: list[Checked]) -> float:
    """Mean absolute relative error over the settings."""
    return sum(abs(one.error) for one in checked) / len(checked)


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
