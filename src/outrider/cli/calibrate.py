"""`outrider calibrate`: what rounds cost here, measured once and kept for the automatic policy and the planner."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.api import drafters_by_name
from outrider.calibrate.check import Checked, check, mean_error
from outrider.calibrate.run import SECONDS, calibrated
from outrider.calibrate.store import Calibration, describe, find, path_of
from outrider.charts.terminal import bar_lines
from outrider.cli.options import DEFAULT_DRAFTER, DEFAULT_TARGET
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import notes_console
from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.targets.base import Target

TargetName = Annotated[str, typer.Option("--target", help="The model whose words are wanted.")]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", help="A drafter's name or spec, or a smaller model. Repeatable. [default: lookup]"),
]
Seconds = Annotated[float, typer.Option(help="How long measuring may take.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure anew even if nothing has changed.")]
Check = Annotated[bool, typer.Option("--check", help="Also compare predicted with measured round times.")]
MaxRows = Annotated[int, typer.Option(help="Most requests at a time that will be served.")]
Dtype = Annotated[str | None, typer.Option(help="Of the weights. [default: the checkpoint's]")]
Device = Annotated[str, typer.Option(help="Where the target runs.")]
Quantize = Annotated[str | None, typer.Option(help="`int8` for a CPU target of half the bytes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def register(app: typer.Typer) -> None:
    app.command()(calibrate)


def calibrate(
    target: TargetName = DEFAULT_TARGET,
    drafter: Drafters = None,
    seconds: Seconds = SECONDS,
    fresh: Fresh = False,
    with_check: Check = False,
    max_rows: MaxRows = 8,
    dtype: Dtype = None,
    device: Device = "cpu",
    quantize: Quantize = None,
    as_json: AsJson = False,
) -> None:
    """Measure what passes, drafts and rounds cost here."""
    if not seconds > 0:
        raise OptionError(f"seconds is {seconds}; it must be above 0")
    drafters = made_drafters(drafter or [DEFAULT_DRAFTER])
    console = notes_console()
    with console.status(f"loading {target}") as status, quiet_loading():
        loaded = load_parts(target, drafters, dtype=dtype, device=device, quantize=quantize, rows=max_rows)
        began = time.perf_counter()
        known = None if fresh else find(loaded)
        found = calibrated(loaded, drafters, seconds=seconds, fresh=fresh, on_step=status.update)
        took = time.perf_counter() - began
        costs = found.for_drafters(drafters)
        checked = check(loaded, drafters, costs, on_step=status.update) if with_check else []
    path = path_of(found.key)
    if as_json:
        print(json.dumps(_as_dict(found, checked, path)))
    else:
        news = "measured earlier; --fresh measures again" if found == known else f"measured in {took:.1f} s"
        console.print(news)
        print("\n".join([*_costs(found, drafters, path), *_errors(checked)]))


def load_parts(
    target: str, drafters: Mapping[str, Drafter], *, dtype: str | None, device: str, quantize: str | None, rows: int
) -> Target:
    """The target, the drafters bound to it."""
    from outrider.targets.loading import load_target

    loaded = load_target(target, dtype=dtype, device=device, quantize=quantize, max_rows=rows)
    Engine(loaded, drafters)  # binds them
    return loaded


def made_drafters(specs: Sequence[str]) -> dict[str, Drafter]:
    """Under the names that an engine gives them; "none" is none. Raises OptionError."""
    return drafters_by_name([spec for spec in specs if spec != "none"])


def _costs(found: Calibration, drafters: dict[str, Drafter], path: Path) -> list[str]:
    costs = found.costs
    one = costs.pass_seconds(1)
    rows = [(f"{width}", costs.pass_seconds(width) / one) for width, _ in costs.table]
    lines = [
        f"measured {found.date}, kept in {path}",
        f"one token: {1000 * one:.1f} ms ({costs.context} tokens of context); a round's overhead "
        f"{1000 * costs.overhead:.2f} ms",
        f"a further row at equal width: {costs.row / one:+.1%}; 100 more tokens of context: "
        f"{100 * (costs.row_token + costs.node_token) / one:+.1%}",
        "",
        "pass by width, in passes of width 1",
        *bar_lines(rows, level=1.0),
        "",
    ]
    return lines + [_drafter(name, found, drafter, one) for name, drafter in drafters.items()]


def _drafter(name: str, found: Calibration, drafter: Drafter, one: float) -> str:
    cost = found.costs.drafters[describe(drafter)]
    if cost.free:
        return f"{name}: {1000 * cost.ask:.3f} ms a proposal ({cost.ask / one:.2%} of a pass)"
    return (
        f"{name}: {1000 * cost.level:.1f} ms a token (c = {cost.level / one:.2f}; a further row "
        f"{1000 * cost.level_row:+.1f} ms), {1000 * cost.read:.2f} ms per token that it reads"
    )


def _errors(checked: list[Checked]) -> list[str]:
    if not checked:
        return []
    names = (
        f"{'round of':<20}{'rows':>5}{'tokens':>8}{'nodes':>7}{'predicted':>13}{'measured':>11}{'error':>8}{'own':>8}"
    )
    rows = [
        f"{one.setting:<20}{one.num_rows:>5}{one.context:>8.0f}{one.num_nodes:>7.1f}{1000 * one.predicted:>10.1f} ms"
        f"{1000 * one.measured:>8.1f} ms{one.error:>+8.1%}{one.own_error:>+8.1%}"
        for one in checked
    ]
    paces = [one.pace for one in checked]
    return [
        "",
        names,
        *rows,
        f"mean absolute error {mean_error(checked):.1%} over {len(checked)} settings; counted in plain rounds timed "
        f"beside each, {mean_error(checked, own=True):.1%} (own)",
        f"those plain rounds took {min(paces):.2f} to {max(paces):.2f} times what the model says, which is how far the "
        "machine's pace has moved since",
    ]


def _as_dict(found: Calibration, checked: list[Checked], path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "date": found.date,
        "key": dict(found.key),
        "costs": found.costs.to_dict(),
        "checked": [{**vars(one), "error": one.error, "own_error": one.own_error} for one in checked],
        "mean_error": mean_error(checked) if checked else None,
        "mean_own_error": mean_error(checked, own=True) if checked else None,
    }
