"""Calibration in one call: passes, then rounds with each drafter, within a given time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from outrider.calibrate.passes import PassTimer
from outrider.calibrate.rounds import draft_cost, overhead, record
from outrider.calibrate.store import Calibration, describe, find, key_of, save
from outrider.drafters.base import Drafter
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.policy.fixed import FixedPolicy
from outrider.targets.base import Target
from outrider.types import RoundStats

SECONDS = 15.0
DRAFT_DEPTH, NUM_ROUNDS, NUM_PROMPT = 4, 10, 64
DRAFT_ROWS = 3  # at a time, to see what further rows cost
TEXT = (
    "The harbour master counts the boats at dawn and again at dusk. def count(boats):\n    total = 0\n"
    "    for boat in boats:\n        total = total + 1\n    return total\nThe boats that are out at dusk stay out. "
)


def calibrated(
    target: Target,
    drafters: Mapping[str, Drafter],
    *,
    seconds: float = SECONDS,
    fresh: bool = False,
    on_step: Callable[[str], None] = lambda words: None,
) -> Calibration:
    """What was measured before, completed by what is missing (all of it if `fresh`), and kept for the next time.

    The target must be idle. Raises OSError where the cache folder cannot be written.
    """
    known = None if fresh else find(target)
    missing = {n: d for n, d in drafters.items() if known is None or describe(d) not in known.costs.drafters}
    if known and not missing:
        return known
    text = sample_text(target)
    found = known or _of_target(target, text, seconds, on_step)
    costs = _of_drafters(target, missing, text, 0.3 * seconds / max(1, len(missing)), on_step)
    found = found.with_drafters(costs)
    save(found)
    return found


def sample_text(target: Target) -> list[int]:
    """Token ids of an ordinary text; of a target without tokenizer, its ids in turn."""
    if target.tokenizer is None:
        return list(range(min(target.info.vocab_size, 64))) * 2
    return target.tokenizer.encode(TEXT)


def _of_target(target: Target, text: Sequence[int], seconds: float, on_step: Callable[[str], None]) -> Calibration:
    on_step("timing the target's pass by width, rows and context")
    passes = PassTimer(target, text, 0.6 * seconds).run()
    on_step("timing plain rounds")
    num_rows = min(DRAFT_ROWS, target.info.max_rows)
    alone, together = (_plain(target, text, count, 0.05 * seconds) for count in (1, num_rows))
    costs = CostModel(
        table=tuple(passes.table.items()),
        context=passes.context,
        row=passes.row,
        row_token=passes.row_token,
        node_token=passes.node_token,
        overhead=overhead(alone),
        overhead_row=max(0.0, overhead(together) - overhead(alone)) / max(1, num_rows - 1),
    )
    return Calibration(key_of(target), datetime.now(UTC).isoformat(timespec="seconds"), costs)


def _of_drafters(
    target: Target,
    drafters: Mapping[str, Drafter],
    text: Sequence[int],
    seconds: float,
    on_step: Callable[[str], None],
) -> dict[str, DraftCost]:
    found: dict[str, DraftCost] = {}
    prompt = [text[i % len(text)] for i in range(min(NUM_PROMPT, target.info.max_length // 4))]
    num_rows = min(DRAFT_ROWS, target.info.max_rows)
    for name, drafter in drafters.items():
        on_step(f"timing drafts of {describe(drafter)}")
        plan = FixedPolicy(name, DRAFT_DEPTH)

        def rounds(count: int, share: float, name: str = name, plan: FixedPolicy = plan) -> list[RoundStats]:
            few = {name: drafters[name]}
            return record(target, few, plan, [prompt] * count, num_rounds=NUM_ROUNDS, seconds=share * seconds)

        cost = draft_cost(rounds(1, 0.6), name, drafter, len(prompt))
        if not cost.free and num_rows > 1:
            more = draft_cost(rounds(num_rows, 0.4)[num_rows:], name, drafter, len(prompt))
            cost = replace(cost, level_row=max(0.0, more.level - cost.level) / (num_rows - 1))
        found[describe(drafter)] = cost
    return found


def _plain(target: Target, text: Sequence[int], num_rows: int, seconds: float) -> list[RoundStats]:
    """Plain rounds of so many rows, the first ones (in which rows join) left out."""
    prompts = [text[:8]] * num_rows
    rounds = record(target, {}, FixedPolicy("none", 0), prompts, num_rounds=NUM_ROUNDS, seconds=seconds)
    return [stats for stats in rounds[1:] if len(stats.rows) == num_rows]
