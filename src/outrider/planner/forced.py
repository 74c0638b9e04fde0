"""Where a drafter that needs a model would be right: its first choice after every token of a known text.

Drafters that keep a draft model of the target's own vocabulary are read in one pass over the text, and believed if the
first places agree with what they propose when they are asked; all others are asked place by place.
"""

from collections.abc import Sequence

from outrider.drafters.base import Drafter
from outrider.drafters.fit import fit
from outrider.planner.replay import ROW, context_at, greedy, read
from outrider.planner.traffic import Sample
from outrider.targets.base import Target
from outrider.types import DraftTree, Plan, pack

TRIED = 4  # places at which the quick way must agree with the slow one


def forced(name: str, drafter: Drafter, sample: Sample, target: Target) -> list[bool]:
    """Per token of the answer: whether the drafter's first choice there is that token."""
    quick = _in_one_pass(drafter, sample, target)
    if quick is not None:
        few = Sample(sample.id, sample.kind, sample.prompt, sample.answer[:TRIED])
        if _place_by_place(name, drafter, few, target) == quick[:TRIED]:
            return quick
    return _place_by_place(name, drafter, sample, target)


def _place_by_place(name: str, drafter: Drafter, sample: Sample, target: Target) -> list[bool]:
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


def _in_one_pass(drafter: Drafter, sample: Sample, target: Target) -> list[bool] | None:
    """None where the drafter keeps no draft model that reads the target's ids and has a row to spare."""
    draft: Target | None = getattr(drafter, "_draft", None)
    size = target.info.vocab_size
    if draft is None or draft.info.vocab_size < size or draft.info.max_length <= len(sample.tokens):
        return None
    if draft.length(ROW):
        return None
    try:
        choices = _choices(draft, sample, size)
    finally:
        draft.free([ROW])
    return [choice == token for choice, token in zip(choices, sample.answer, strict=True)]


def _choices(draft: Target, sample: Sample, vocab_size: int) -> Sequence[int]:
    read(draft, sample.prompt[:-1])
    chain = DraftTree.chain(sample.prompt[-1], sample.answer[:-1])
    packed = pack([chain], [ROW], [len(sample.prompt) - 1], draft.info.device)
    return draft.score(packed).logits[:, :vocab_size].argmax(-1).tolist()
