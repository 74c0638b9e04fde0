"""Calibration in one call: passes, then rounds with each drafter, within a given time."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from outrider.calibrate.passes import PassTimer
from outrider.calibrate.rounds import draft_cost, overhead, record
from outrider.calibrate.store import Calibration, describe, find, key_of, save
from outrider.drafters.base import Drafter
from outrider.policy.cost_model import CostModel, DraftCost
from outrider.policy.fixed import FixedPolicy
from outrider.targets.base import Target

SECONDS = 15.0
DRAFT_DEPTH, NUM_ROUNDS, NUM_PROMPT = 4, 10, 64
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
    rounds = record(target, {}, FixedPolicy("none", 0), [text[:8]], num_rounds=NUM_ROUNDS, seconds=0.1 * seconds)
    costs = CostModel(
        table=tuple(passes.table.items()),
        context=passes.context,
        row_growth=passes.row_growth,
        context_growth=passes.context_growth,
        overhead=overhead(rounds[1:]),
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
    for name, drafter in drafters.items():
        on_step(f"timing drafts of {describe(drafter)}")
        plan = FixedPolicy(name, DRAFT_DEPTH)
        rounds = record(target, {name: drafter}, plan, [prompt], num_rounds=NUM_ROUNDS, seconds=seconds)
        found[describe(drafter)] = draft_cost(rounds, name, drafter, len(prompt))
    return found
