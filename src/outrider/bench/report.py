"""The result of a benchmark: tables for a person, one JSON object for a program."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.bench.equality import Equality
from outrider.bench.runs import Run
from outrider.bench.summary import DECODING, Figures, Ratio


@dataclass(frozen=True)
class Report:
    """Everything that was found. growth: seconds of a target pass by its width."""

    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    growth: Mapping[int, float]
    figures: Sequence[Figures]
    equalities: Sequence[Equality]
    ratios: Sequence[Ratio]
    reasons: Sequence[str]
    runs: Sequence[Run]
    complete: bool = True

    @property
    def sound(self) -> bool:
        """All texts are equal up to near ties."""
        return all(equality.sound for equality in self.equalities)

    def to_dict(self, *, runs: bool) -> dict[str, Any]:
        """runs: each single run too."""
        values = {"sound": self.sound, **asdict(self)}
        if not runs:
            del values["runs"]
        return values


def show(report: Report, console: Console) -> None:
    """Print tables, then the JSON object as the last line."""
    for part in _parts(report):
        console.print(part)
    console.file.write(json.dumps(report.to_dict(runs=False)) + "\n")


def _parts(report: Report) -> Iterator[RenderableType]:
    settings, machine = report.settings, report.environment
    yield Text(
        f"target {settings['target']} in {settings['dtype']}, {settings['exact']}; {settings['prompts']} prompts, "
        f"{settings['max_new_tokens']} tokens, {settings['repeats']} repeats"
        f"\n{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, transformers "
        f"{machine['transformers']}, {machine['date']}"
    )
    if report.growth:
        first = next(iter(report.growth.values()))
        grown = ", ".join(f"{width}: {seconds / first:.2f}" for width, seconds in report.growth.items())
        yield Text(f"growth of the target's pass with its width: {grown} (width 1 takes {first * 1000:.1f} ms)")
    yield _speeds(report.figures)
    yield _seconds(report.figures)
    yield _equalities(report.equalities)
    yield _ratios(report.ratios)
    yield from (Text(reason) for reason in report.reasons)
    if not report.complete:
        yield Text("interrupted: figures are of the runs until then", "yellow")


def _speeds(figures: Sequence[Figures]) -> Table:
    columns = ("tok/s", "range", "and prefill", "a round", "kept", "overhead")
    table = Table("system", *columns, title="speed of decoding, and with prefill; tokens a round")
    for one in figures:
        table.add_row(
            one.system,
            f"{one.rate:.2f}",
            f"{one.rate_range[0]:.2f}-{one.rate_range[1]:.2f}",
            f"{one.overall_rate:.2f}",
            f"{one.tokens_per_round:.2f}",
            "" if one.acceptance is None else f"{one.acceptance:.0%}",
            "" if one.overhead is None else f"{one.overhead:.1%}",
        )
    return table


def _seconds(figures: Sequence[Figures]) -> Table:
    table = Table("system", "prefill", *DECODING, title="seconds by phase")
    for one in figures:
        phases = [f"{one.phases[name]:.2f}" for name in DECODING] if one.phases else [""] * len(DECODING)
        table.add_row(one.system, f"{one.prefill:.2f}", *phases)
    return table


def _equalities(equalities: Sequence[Equality]) -> Table:
    table = Table("system / against", "equal", "near ties", "NOT EXPLAINED", "worst difference", title="equality")
    for one in equalities:
        counts = map(str, (one.equal, one.near_ties, one.not_explained))
        table.add_row(_pair(one), *counts, one.worst, style=None if one.sound else "red")
    return table


def _ratios(ratios: Sequence[Ratio]) -> Table:
    kinds = list(dict.fromkeys(kind for one in ratios for kind in one.by_kind))
    table = Table("system / against", "speed-up", *kinds, title="ratios of decoding speed")
    for one in ratios:
        if one.value is None or one.range is None:
            table.add_row(_pair(one), f"none: {one.withheld}", *[""] * len(kinds))
            continue
        by_kind = [f"{one.by_kind[kind]:.2f}" if kind in one.by_kind else "" for kind in kinds]
        note = f"\n{one.note}" if one.note else ""
        table.add_row(_pair(one), f"{one.value:.2f}x\n{one.range[0]:.2f}-{one.range[1]:.2f}{note}", *by_kind)
    return table


def _pair(one: Equality | Ratio) -> str:
    return f"{one.system}\n/ {one.reference}"
