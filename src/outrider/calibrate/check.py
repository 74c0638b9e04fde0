"""Is the cost model true? Predicted against measured seconds of whole rounds, on settings that it was not made from."""

from collections.abc import Mapping
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
PROMPT_TOKENS = 120


@dataclass(frozen=True)
class Checked:
    """One setting: seconds of its median round as predicted and as measured, and the mean width of its passes."""

    setting: str
    num_nodes: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative; above 0: the model promised too long a round."""
        return self.predicted / self.measured - 1


def check(target: Target, drafters: Mapping[str, Drafter], costs: CostModel, *, seconds: float = 20.0) -> list[Checked]:
    """Rounds of every drafter at several depths, alone and (if the target has the rows) three at a time."""
    text = sample_text(target)
    size = min(PROMPT_TOKENS, target.info.max_length // 4)
    prompt = [text[i % len(text)] for i in range(size)]
    plans = [FixedPolicy("none", 0), *(FixedPolicy(name, depth) for name in drafters for depth in (2, 5, 8))]
    batches = [1] if target.info.max_rows < 3 else [1, 3]
    share = seconds / len(plans) / len(batches)
    found: list[Checked] = []
    for num_rows in batches:
        for plan in plans:
            prompts = [prompt[row:] for row in range(num_rows)]
            rounds = record(target, drafters, plan, prompts, num_rounds=NUM_ROUNDS, seconds=share)
            if settled := [stats for stats in rounds[1:] if len(stats.rows) == num_rows]:
                found.append(_compare(plan, num_rows, settled, costs))
    return found


def mean_error(checked: list[Checked]) -> float:
    """Mean absolute relative error over the settings."""
    return sum(abs(one.error) for one in checked) / len(checked)


def _compare(plan: FixedPolicy, num_rows: int, rounds: list[RoundStats], costs: CostModel) -> Checked:
    ratios = [(_predicted(stats, costs), stats.seconds.total - stats.seconds.prefill) for stats in rounds]
    name = "plain" if plan.drafter == "none" else f"{plan.drafter}, depth {plan.max_depth}"
    rows = f", {num_rows} rows" if num_rows > 1 else ""
    nodes = sum(stats.num_nodes for stats in rounds) / len(rounds)
    return Checked(name + rows, nodes, median(p for p, _ in ratios), median(m for _, m in ratios))


def _predicted(stats: RoundStats, costs: CostModel) -> float:
    context = sum(row.context_length for row in stats.rows) / len(stats.rows)
    drafting = sum(costs.draft_seconds(one.drafter, one.depth, one.num_rows) for one in stats.asked)
    return costs.pass_seconds(stats.num_nodes, len(stats.rows), context) + drafting + costs.overhead
