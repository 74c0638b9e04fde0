"""A plan from beginning to end: traffic, answers, replays, prices, a recommendation, real runs.

Every costly step goes through Work, so that an interrupt keeps what was done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.calibrate.store import describe
from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.planner.forced import forced
from outrider.planner.predict import Table
from outrider.planner.profile import Profile
from outrider.planner.replay import PLAIN, Rounds, Setting, TextLogits, plain_rounds, replay_chain, replay_free
from outrider.planner.traffic import Sample
from outrider.planner.verify import Verified, candidates, verify
from outrider.planner.work import Work
from outrider.policy.cost_model import CostModel
from outrider.sampling.params import NEUTRAL
from outrider.targets.base import Target

DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
TREES = ((3, 8), (4, 12), (6, 16), (6, 24), (8, 32))  # (depth, nodes), for drafters that branch
BEST = 3
Step = Callable[[str], None]


@dataclass(frozen=True)
class Planned:
    """The result. verified is empty if nothing was run."""

    table: Table
    profile: Profile
    verified: list[Verified]
    settings: Mapping[str, Any]

    @property
    def sound(self) -> bool:
        """No real run wrote another text than plain decoding."""
        return not any(one.differs for one in self.verified)


def run_plan(
    target: Target,
    drafters: Mapping[str, Drafter],
    specs: Sequence[str],
    samples: Sequence[Sample],
    costs: CostModel,
    work: Work,
    *,
    batch: int = 1,
    max_new_tokens: int = 128,
    num_verified: int = 4,
    on_step: Step = lambda words: None,
) -> Planned:
    """costs: calibrated, with the drafters under their names. num_verified: samples of the real runs; 0 for none."""
    if not drafters:
        raise OptionError("there is no drafter to plan with; name some with --drafters lookup,suffix")
    answered = _answered(target, samples, work, max_new_tokens, on_step)
    found = {PLAIN: {sample.id: plain_rounds(sample) for sample in answered}}
    for name, drafter in drafters.items():
        found |= _replayed(name, drafter, answered, target, work, on_step)
    table = Table(answered, found, costs)
    best = [setting for setting in table.ranked(batch) if setting != PLAIN][:BEST]
    verified: list[Verified] = []
    if num_verified:
        chosen = candidates(best, {s: table.priced(s).speed for s in [PLAIN, *best]})
        few = answered[:num_verified]

        def once(step: str, make: Callable[[], Any]) -> Any:
            on_step(f"real runs: {step.removeprefix('run ')}")
            return work.once(step, make)

        verified = verify(target, drafters, costs, chosen, few, max_new_tokens=max_new_tokens, once=once)
    profile = _recommend(target, drafters, specs, table, verified, batch)
    about = {"batch": batch, "max_new_tokens": max_new_tokens, "samples": len(answered)}
    return Planned(table, profile, verified, about)


def work_key(
    target: Target,
    drafters: Mapping[str, Drafter],
    samples: Sequence[Sample],
    machine_key: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """Everything that a plan's work depends on."""
    texts = [(sample.id, sample.kind, sample.prompt, sample.answer) for sample in samples]
    return {"calibration": machine_key, "drafters": [describe(d) for d in drafters.values()], "samples": texts, **more}


def work_path(out: Path | None) -> Path | None:
    return out.with_name(f"{out.stem}.work.json") if out else None


def _answered(
    target: Target, samples: Sequence[Sample], work: Work, max_new_tokens: int, on_step: Step
) -> list[Sample]:
    """Samples with answers: those that lack one are written plainly, once."""
    engine, answered = Engine(target), list[Sample]()
    settings = {**NEUTRAL, "max_new_tokens": max_new_tokens}
    for number, sample in enumerate(samples, 1):
        if not sample.recorded:
            on_step(f"writing answer {number} of {len(samples)}, plainly")
            make = lambda s=sample: list(engine.generate(list(s.prompt), **settings).token_ids)  # noqa: E731
            sample = replace(sample, answer=tuple(work.once(f"answer {sample.id}", make)))
        if sample.answer:
            answered.append(sample)
    if not answered:
        raise OptionError("every answer is empty, so there is nothing to plan with; give prompts that are answered")
    return answered


def _replayed(
    name: str, drafter: Drafter, samples: Sequence[Sample], target: Target, work: Work, on_step: Step
) -> dict[Setting, dict[str, Rounds]]:
    """Every setting of one drafter on every sample."""
    settings = [Setting(name, depth, depth) for depth in DEPTHS]
    if drafter.free and drafter.preferred_nodes > drafter.preferred_depth:
        settings += [Setting(name, depth, nodes) for depth, nodes in TREES]
    found: dict[Setting, dict[str, Rounds]] = {setting: {} for setting in settings}
    for number, sample in enumerate(samples, 1):
        on_step(f"replaying {name}: {number} of {len(samples)}")
        make = lambda s=sample: _replay(name, drafter, s, settings, target)  # noqa: E731
        rows = work.once(f"replay {name} {sample.id}", make)
        for setting, row in zip(settings, rows, strict=True):
            found[setting][sample.id] = Rounds(*row[:4], kept=tuple(row[4]), asked=row[5])
    return found


def _replay(
    name: str, drafter: Drafter, sample: Sample, settings: Sequence[Setting], target: Target
) -> list[list[Any]]:
    """Plain values, setting by setting."""
    if drafter.free:
        logits = TextLogits(target, sample)
        done = [replay_free(drafter, sample, setting, target, logits) for setting in settings]
    else:
        right = forced(name, drafter, sample, target)
        done = [replay_chain(right, setting.max_depth) for setting in settings]
    return [[one.tokens, one.rounds, one.nodes, one.levels, list(one.kept), one.asked] for one in done]


def _recommend(
    target: Target,
    drafters: Mapping[str, Drafter],
    specs: Sequence[str],
    table: Table,
    verified: Sequence[Verified],
    batch: int,
) -> Profile:
    """The fastest that was really run and wrote plain decoding's text; without runs, the one predicted fastest."""
    ranked = table.ranked(batch)
    by_name = {str(setting): setting for setting in ranked}
    sound = [one for one in verified if not one.differs]
    fastest = max(sound, key=lambda one: one.speed, default=None)
    about: dict[str, Any] = {"batch": batch, "samples": len(table.samples)}
    if fastest is not None:
        plain = next(one for one in verified if one.name == str(PLAIN))
        about |= {"measured_tokens_per_second": fastest.speed, "measured_plain": plain.speed}
        if fastest.name == "auto":
            return Profile(target.info.name, tuple(specs), "auto", about=about)
    setting = by_name[fastest.name] if fastest else ranked[0]
    about |= {
        "predicted_tokens_per_second": table.priced(setting, batch).speed,
        "predicted_speedup": table.speedup(setting, batch),
    }
    return Profile(
        target.info.name,
        (specs[list(drafters).index(setting.drafter)],) if setting != PLAIN else (),
        "fixed",
        setting.drafter,
        setting.max_depth,
        setting.max_nodes,
        about=about,
    )
