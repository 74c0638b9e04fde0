"""How a drafter is replayed: in which settings, and whether for real or by asking it once at every place."""

from collections.abc import Sequence

from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.planner.forced import forced
from outrider.planner.replay import Rounds, Setting, TextLogits, replay_chain, replay_run
from outrider.planner.traffic import Sample
from outrider.targets.base import Target

DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
TREES = ((3, 8), (4, 12), (6, 16), (6, 24), (8, 32))  # (depth, nodes), for drafters that branch
FEW_DEPTHS, FEW_TREES = (2, 4, 6), ((4, 12), (6, 16))  # where every replay costs passes of a draft model


def settings_of(name: str, drafter: Drafter) -> list[Setting]:
    """Chains of every depth, and trees if it branches; fewer of both where replaying is dear."""
    cheap = without_passes(drafter) or one_answer_tells(drafter)
    settings = [Setting(name, depth, depth) for depth in (DEPTHS if cheap else FEW_DEPTHS)]
    if drafter.preferred_nodes > drafter.preferred_depth:
        settings += [Setting(name, *shape) for shape in (TREES if cheap else FEW_TREES)]
    return settings


def without_passes(drafter: Drafter) -> bool:
    """Whether it drafts without a model: it is free, or mixed of such."""
    parts: Sequence[Drafter] = getattr(drafter, "parts", ())
    return drafter.free or (bool(parts) and all(map(without_passes, parts)))


def one_answer_tells(drafter: Drafter) -> bool:
    """Whether its first choice at every place tells what every chain would hold: a model that never stops early."""
    if not isinstance(drafter, ModelDrafter):
        return False
    return drafter.branches == 1 and drafter.min_confidence == 0 and drafter.min_survival == 0


def replay(drafter: Drafter, sample: Sample, settings: Sequence[Setting], target: Target) -> list[Rounds]:
    """The sample in every setting."""
    if one_answer_tells(drafter):
        right = forced(settings[0].drafter, drafter, sample, target)
        return [replay_chain(right, setting.max_depth) for setting in settings]
    logits = TextLogits(target, sample)
    return [replay_run(drafter, sample, setting, target, logits) for setting in settings]
