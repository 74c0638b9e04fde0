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
from outrider.planner.chance import spread
from outrider.planner.predict import Table
from outrider.planner.profile import Profile
from outrider.planner.recommend import Advice, advise
from outrider.planner.replay import PLAIN, Rounds, Setting, plain_rounds
from outrider.planner.traffic import Sample
from outrider.planner.verify import Verified, candidates, groups_of, verify
from outrider.planner.ways import replay, settings_of
from outrider.planner.work import Work
from outrider.policy.cost_model import CostModel
from outrider.sampling.params import NEUTRAL
from outrider.targets.base import Target

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
    """costs: calibrated, with the drafters under their names. num_verified: samples of the real runs; 0 for none.

    Real runs have `batch` requests at a time, as far as there are samples and rows.
    """
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
        groups = groups_of(answered, num_verified, min(batch, target.info.max_rows))
        chosen = candidates(best, {s: table.priced(s, len(groups[0])).speed for s in [PLAIN, *best]})

        def once(step: str, make: Callable[[], Any]) -> Any:
            on_step(f"real runs: {step.removeprefix('run ')}")
            return work.once(step, make)

        verified = verify(target, drafters, costs, chosen, groups, max_new_tokens=max_new_tokens, once=once)
    advice = advise(table, verified, batch)
    profile = _profile(target, drafters, specs, advice, _about(table, advice, verified, batch))
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
    settings = [str(setting) for name, one in drafters.items() for setting in settings_of(name, one)]
    made = [describe(one) for one in drafters.values()]
    return {"calibration": machine_key, "drafters": made, "settings": settings, "samples": texts, **more}


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
    settings = settings_of(name, drafter)
    found: dict[Setting, dict[str, Rounds]] = {setting: {} for setting in settings}
    for number, sample in enumerate(samples, 1):
        on_step(f"replaying {name}: {number} of {len(samples)}")
        make = lambda s=sample: [_plain_values(one) for one in replay(drafter, s, settings, target)]  # noqa: E731
        rows = work.once(f"replay {name} {sample.id}", make)
        for setting, row in zip(settings, rows, strict=True):
            found[setting][sample.id] = Rounds(*row[:4], kept=tuple(row[4]), asked=row[5])
    return found


def _plain_values(one: Rounds) -> list[Any]:
    return [one.tokens, one.rounds, one.nodes, one.levels, list(one.kept), one.asked]


def _profile(
    target: Target, drafters: Mapping[str, Drafter], specs: Sequence[str], advice: Advice, about: Mapping[str, Any]
) -> Profile:
    """Specs in the order of the drafters. A fixed profile has its own drafter alone."""
    name, setting = target.info.name, advice.setting
    if setting is None:
        return Profile(name, tuple(specs), "auto", about=about)
    kept = () if setting == PLAIN else (specs[list(drafters).index(setting.drafter)],)
    return Profile(
        name, kept, "fixed", setting.drafter, setting.max_depth, max(setting.max_nodes, setting.max_depth), about=about
    )


def _about(table: Table, advice: Advice, verified: Sequence[Verified], batch: int) -> dict[str, Any]:
    """What the profile rests on."""
    about: dict[str, Any] = {"batch": batch, "samples": len(table.samples), "why": advice.why}
    name = "auto" if advice.setting is None else str(advice.setting)
    if chosen := next((one for one in verified if one.name == name), None):
        about |= {"measured_tokens_per_second": chosen.speed, "measured_plain": verified[0].speed}
    if advice.setting is not None:
        low = spread(table, advice.setting, batch)
        about |= {
            "predicted_tokens_per_second": table.priced(advice.setting, batch).speed,
            "predicted_speedup": table.speedup(advice.setting, batch),
            "predicted_speedup_range": [low.low, low.high],
        }
    return about
