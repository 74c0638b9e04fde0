"""A certificate for a person to read: one table by kind and setting, every difference, and the verdict."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.certify.records import Certificate, Difference, JobResult


def show(certificate: Certificate, console: Console) -> None:
    """Print everything."""
    for part in render(certificate):
        console.print(part)


def render(certificate: Certificate) -> Iterator[RenderableType]:
    yield _header(certificate)
    if certificate.results:
        yield _table(certificate.results)
        yield _effective(certificate.results[0])
    differing = [result for result in certificate.results if result.difference]
    if differing:
        yield _differences(differing)
    yield from (Text(f"note: {note}", "yellow") for note in certificate.notes)
    yield from (Text(f"fault: {fault}", "bold red") for fault in certificate.faults)
    yield _noise(certificate)
    yield verdict(certificate)


def verdict(certificate: Certificate) -> Text:
    """One line: what was certified, and whether it holds."""
    compared = f"{certificate.num_tokens} tokens in {len(certificate.results)} of {certificate.num_jobs} runs"
    counts = (
        f"{certificate.count('equal')} equal, {certificate.count('near tie')} near ties, "
        f"{certificate.count('NOT EXPLAINED')} NOT EXPLAINED"
    )
    if certificate.passed:
        return Text(f"CERTIFIED: {compared}: {counts}", "bold green")
    if certificate.faults or certificate.count("NOT EXPLAINED"):
        return Text(f"FAILED: {compared}: {counts}", "bold red")
    return Text(f"INTERRUPTED, nothing wrong so far: {compared}: {counts}", "bold yellow")


def _header(certificate: Certificate) -> Text:
    settings, machine = certificate.settings, certificate.environment
    reason = f" ({settings['exact_reason']})" if settings["exact_reason"] else ""
    return Text(
        f"target {settings['target']} in {settings['dtype']}, {settings['exact']}{reason}; drafter "
        f"{settings['drafter'] or 'unnamed'}; rule {settings['rule']}"
        f"\n{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, {machine['date']}"
    )


def _table(results: Sequence[JobResult]) -> Table:
    table = Table("kind", "temp.", "depth", "runs", "tokens", "a round", "equal", "near tie", "un-\nexplained")
    groups: dict[tuple[str, float, int], list[JobResult]] = {}
    for result in results:
        groups.setdefault((result.kind, result.temperature, result.depth), []).append(result)
    for (kind, temperature, depth), group in groups.items():
        tokens, rounds = sum(r.num_tokens for r in group), sum(r.rounds for r in group)
        counts = [sum(r.verdict == v for r in group) for v in ("equal", "near tie", "NOT EXPLAINED")]
        shown = [f"{temperature:g}", depth, len(group), tokens, f"{tokens / max(rounds, 1):.2f}", *counts]
        table.add_row(kind, *map(str, shown), style="red" if counts[2] else None)
    return table


def _differences(results: Sequence[JobResult]) -> Table:
    table = Table("run", "what", "at", "plain", "speculative", "top-2 gap", "gap", "noise", "tolerance", "verdict")
    for result in results:
        difference = result.difference
        if difference:
            table.add_row(result.key, *_row(difference), style="red" if result.verdict == "NOT EXPLAINED" else None)
    return table


def _row(difference: Difference) -> list[str]:
    figures = (difference.gap, difference.pair_gap, difference.noise, difference.tolerance)
    return [
        difference.what,
        "" if difference.position is None else str(difference.position),
        _short(difference.plain),
        _short(difference.speculative),
        *("" if figure is None else f"{figure:.3g}" for figure in figures),
        f"{difference.verdict}: {difference.reason}",
    ]


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= 24 else text[:21] + "..."


def _effective(result: JobResult) -> Text:
    """The options of the first run; both sides of every pair had the same (that is checked), but for the depth."""
    said = "  ".join(f"{name}={value!r}" for name, value in result.effective_params.items() if value not in (None, []))
    return Text(f"effective options, the same on both sides but for max_depth (plain: 0):\n{said}", "dim")


def _noise(certificate: Certificate) -> Text:
    noise, floor = certificate.noise, certificate.floor
    parts: list[str] = []
    if noise:
        parts.append(f"rounding noise of a logit over pass shapes: {noise['largest']:.3g} ({noise['places']} places)")
    if floor:
        parts.append(
            f"noise floor, plain with 1 thread against {floor.threads}: {floor.different} of {floor.compared} differ"
        )
    return Text("; ".join(parts), "dim")
