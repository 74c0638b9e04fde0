"""From runs to figures: rates, phases, ratios with their spread, and why a ratio is what it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from outrider.bench.equality import Equality
from outrider.bench.runs import Run, System
from outrider.types import PhaseSeconds

DECODING = ("draft", "score", "accept", "rest")


@dataclass(frozen=True)
class Figures:
    """One system over all prompts and repeats. Rates in tokens per second, seconds summed.

    rate: of decoding, median over repeats; rate_range: least and greatest; overall_rate: prefill included. phases:
    seconds of decoding by phase; overhead: share of decoding outside the models' passes. Both None for transformers.
    """

    system: str
    rate: float
    rate_range: tuple[float, float]
    overall_rate: float
    prefill: float
    tokens: int
    rounds: int
    tokens_per_round: float
    acceptance: float | None
    phases: dict[str, float] | None
    overhead: float | None


@dataclass(frozen=True)
class Ratio:
    """How much faster a system decodes than a reference: geometric mean over prompts, median and range over repeats.

    value None: the outputs differ beyond near ties, so there is no speed-up to speak of. note: what else to know of it.
    """

    system: str
    reference: str
    value: float | None
    range: tuple[float, float] | None
    by_kind: dict[str, float]
    withheld: str = ""
    note: str = ""


def figures(system: str, runs: Sequence[Run]) -> Figures:
    mine = [run for run in runs if run.system == system]
    rates = list(_by_repeat(mine, _rate).values())
    tokens, rounds = sum(len(r.timing.token_ids) for r in mine), sum(r.timing.rounds for r in mine)
    proposed = sum(r.timing.proposed for r in mine)
    phases = _phases(mine)
    return Figures(
        system=system,
        rate=median(rates),
        rate_range=(min(rates), max(rates)),
        overall_rate=tokens / sum(r.timing.seconds for r in mine),
        prefill=sum(r.timing.prefill for r in mine),
        tokens=tokens,
        rounds=rounds,
        tokens_per_round=sum(r.timing.decoded for r in mine) / max(1, rounds),
        acceptance=sum(r.timing.accepted for r in mine) / proposed if proposed else None,
        phases=phases,
        overhead=None if phases is None else (phases["accept"] + phases["rest"]) / max(sum(phases.values()), 1e-12),
    )


def ratio(system: str, reference: str, runs: Sequence[Run], equalities: Iterable[Equality]) -> Ratio:
    """The ratio, or why there is none. equalities: all comparisons that the two systems' texts rest on."""
    equalities = list(equalities)
    for equality in equalities:
        if not equality.sound:
            why = f"{equality.system} differs from {equality.reference}: {equality.worst}"
            return Ratio(system, reference, None, None, {}, why)
    pairs = _pairs(runs, system, reference)
    repeats = [_mean(values) for values in _group(pairs, lambda run: run.repeat).values()]
    kinds = {kind: _mean(values) for kind, values in _group(pairs, lambda run: run.kind).items()}
    if not repeats:
        return Ratio(system, reference, None, None, {}, "nothing was decoded")
    note = "other weights" if any(equality.other_weights for equality in equalities) else ""
    return Ratio(system, reference, median(repeats), (min(repeats), max(repeats)), kinds, note=note)


def why(plain: Figures, other: Figures, value: float) -> str:
    """What a ratio to plain decoding is made of: what a round yields, and what it costs in plain rounds."""
    if plain.phases is None or other.phases is None or not plain.rounds or not other.rounds:
        return ""
    plain_round = sum(plain.phases.values()) / plain.rounds
    costs = {name: other.phases[name] / other.rounds / plain_round for name in DECODING}
    parts = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
    verdict = "slower than plain" if value < 1 else "faster than plain"
    return (
        f"{other.system}: {value:.2f}x, {verdict}: a round yields {other.tokens_per_round:.2f} tokens and costs "
        f"{sum(costs.values()):.2f} plain rounds ({parts}); overhead is {other.overhead or 0.0:.1%} of its time"
    )


def text_pairs(systems: Sequence[System]) -> list[tuple[System, System]]:
    """Pairs whose texts are compared: each system with its family's plain, and the plain ones with each other."""
    plain = {system.family: system for system in systems if system.method == "plain"}
    pairs = [(system, plain[system.family]) for system in systems if system is not plain[system.family]]
    if "outrider" in plain:
        pairs += [(plain["outrider"], other) for family, other in plain.items() if family != "outrider"]
    return pairs


def ratio_pairs(systems: Sequence[System]) -> list[tuple[System, System]]:
    """Each system against its family's plain; ours against every other family's plain, and the same method there."""
    plain = {system.family: system for system in systems if system.method == "plain"}
    pairs = [(system, plain[system.family]) for system in systems if system is not plain[system.family]]
    theirs = [system for system in systems if system.family != "outrider"]
    ours = [system for system in systems if system.family == "outrider"]
    return pairs + [(one, two) for one in ours for two in theirs if two.method in ("plain", one.method)]


def rests_on(system: System, reference: System, equalities: Sequence[Equality]) -> list[Equality]:
    """The comparisons that tie the two texts together, by way of the plain systems."""
    names, across = {system.name, reference.name}, {system.family, reference.family} - {"outrider"}
    joined = across if system.family != reference.family else set[str]()
    return [e for e in equalities if (e.reference_family in joined if e.joins_families else e.system in names)]


def _phases(runs: Sequence[Run]) -> dict[str, float] | None:
    known = [run.timing.phases for run in runs if run.timing.phases is not None]
    if len(known) != len(runs):
        return None
    total = sum(known, start=PhaseSeconds())
    return {name: getattr(total, name) for name in DECODING}


def _rate(runs: Sequence[Run]) -> float:
    spent = sum(run.timing.seconds - run.timing.prefill for run in runs)
    return sum(run.timing.decoded for run in runs) / spent if spent > 0 else 0.0


def _by_repeat(runs: Sequence[Run], figure: Callable[[Sequence[Run]], float]) -> dict[int, float]:
    repeats = sorted({run.repeat for run in runs})
    return {repeat: figure([run for run in runs if run.repeat == repeat]) for repeat in repeats}


def _pairs(runs: Sequence[Run], system: str, reference: str) -> list[tuple[Run, float]]:
    """(run of the system, its rate over the reference's on the same prompt in the same repeat)."""
    theirs = {(run.prompt_id, run.repeat): run.timing.rate for run in runs if run.system == reference}
    mine = [run for run in runs if run.system == system]
    found = [(run, theirs.get((run.prompt_id, run.repeat), 0.0)) for run in mine]
    return [(run, run.timing.rate / rate) for run, rate in found if rate > 0 and run.timing.rate > 0]


def _group(pairs: Sequence[tuple[Run, float]], key: Callable[[Run], object]) -> Mapping[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for run, value in pairs:
        groups.setdefault(str(key(run)), []).append(value)
    return groups


def _mean(values: Sequence[float]) -> float:
    """Geometric."""
    return exp(sum(log(value) for value in values) / len(values))
