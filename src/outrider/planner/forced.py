"""Where a drafter that needs a model would be right: its first choice after every token of a known text."""

from collections.abc import Mapping

from outrider.drafters.base import Drafter
from outrider.drafters.fit import fit
from outrider.errors import OptionError
from outrider.planner.replay import ROW, context_at, greedy
from outrider.planner.traffic import Sample
from outrider.targets.base import Target
from outrider.types import Plan


def check_replayable(drafters: Mapping[str, Drafter]) -> None:
    """OptionError for a drafter that cannot be asked about texts which the target is not writing."""
    for name, drafter in drafters.items():
        if drafter.needs_target_cache:
            raise OptionError(
                f"{name} drafts with the target's own cache, so recorded texts cannot be replayed through it; measure "
                "it with `outrider sweep`"
            )


def forced(name: str, drafter: Drafter, sample: Sample, target: Target) -> list[bool]:
    """Per token of the answer: whether the drafter's first choice there is that token."""
    params, plan = greedy(target), Plan(name, 1, 1)
    right: list[bool] = []
    drafter.begin(ROW, sample.prompt)
    try:
        for place, token in enumerate(sample.answer):
            context = context_at(sample, place, plan, params)
            tree = fit(drafter.propose([context])[0], context, target.info.vocab_size)
            right.append(tree.num_drafted > 0 and tree.tokens[1] == token)
    finally:
        drafter.end(ROW)
    return right
