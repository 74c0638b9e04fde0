"""`outrider plan`: how to serve one's own traffic with a target, found by replay and verified by real runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from outrider.calibrate.run import SECONDS, calibrated
from outrider.cli.calibrate import load_parts, made_drafters
from outrider.cli.options import DEFAULT_TARGET
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import notes_console
from outrider.errors import OptionError
from outrider.files import check_writable
from outrider.planner.chance import spread
from outrider.planner.forced import check_replayable
from outrider.planner.predict import Table
from outrider.planner.replay import PLAIN, Setting
from outrider.planner.report import recommended, report
from outrider.planner.run import Planned, run_plan, work_key, work_path
from outrider.planner.traffic import read_traffic
from outrider.planner.verify import Verified, pace_note
from outrider.planner.work import Work
from outrider.prompts import OWN

FAILED = 1
MOST_ROWS = 16
SHOWN = 3  # settings of each drafter in the terminal

TargetName = Annotated[str, typer.Option("--target", help="The model whose words are wanted.")]
Drafters = Annotated[
    str, typer.Option("--drafters", help="Drafters with commas between them: lookup,suffix,model:qwen-0.5b.")
]
Traffic = Annotated[
    str, typer.Option(help=f"A .jsonl file of prompts, with answers or without; {OWN!r} for the project's own prompts.")
]
Out = Annotated[Path | None, typer.Option(help="Write the profile to this file; work in progress is kept beside it.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a report with plots to this file.")]
Batch = Annotated[int, typer.Option(help="Requests that usually run at the same time.")]
MaxNewTokens = Annotated[int, typer.Option(help="Most tokens of an answer that are looked at.")]
Limit = Annotated[int | None, typer.Option("--num-samples", help="At most so many samples, from all kinds in turn.")]
Verify = Annotated[int, typer.Option("--verify", help="Samples on which the best three are run for real; 0 for none.")]
Seconds = Annotated[float, typer.Option(help="How long calibration may take, where it was not done before.")]
Dtype = Annotated[str | None, typer.Option(help="Of the weights. [default: the checkpoint's]")]
Device = Annotated[str, typer.Option(help="Where the target runs.")]
Quantize = Annotated[str | None, typer.Option(help="`int8` for a CPU target of half the bytes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the profile as JSON instead of text.")]


def register(app: typer.Typer) -> None:
    app.command()(plan)


def plan(
    traffic: Traffic,
    target: TargetName = DEFAULT_TARGET,
    drafters: Drafters = "lookup,suffix",
    out: Out = None,
    html: Html = None,
    batch: Batch = 1,
    max_new_tokens: MaxNewTokens = 128,
    num_samples: Limit = 24,
    verify: Verify = 4,
    seconds: Seconds = SECONDS,
    dtype: Dtype = None,
    device: Device = "cpu",
    quantize: Quantize = None,
    as_json: AsJson = False,
) -> None:
    """Find the setting that serves this traffic fastest. Ctrl-C keeps the work (with --out); run it again to go on."""
    for name, value, least in (("batch", batch, 1), ("max_new_tokens", max_new_tokens, 1), ("verify", verify, 0)):
        if value < least:
            raise OptionError(f"{name} is {value}; it must be at least {least}")
    check_writable(out, "--out")
    check_writable(html, "--html")
    specs = split_specs(drafters)
    made = made_drafters(specs)
    check_replayable(made)
    console = notes_console()
    with console.status(f"loading {target}") as status, quiet_loading():
        rows = max(4, min(batch, MOST_ROWS))
        loaded = load_parts(target, made, dtype=dtype, device=device, quantize=quantize, rows=rows)
        samples = read_traffic(traffic, loaded, limit=num_samples, max_new_tokens=max_new_tokens)
        found = calibrated(loaded, made, seconds=seconds, on_step=status.update)
        key = work_key(loaded, made, samples, found.key, max_new_tokens=max_new_tokens)
        work = Work(work_path(out), key)
        if work.resumed:
            console.print(f"going on with {work.resumed} finished steps")
        planned = run_plan(
            loaded,
            made,
            specs,
            samples,
            found.for_drafters(made),
            work,
            batch=batch,
            max_new_tokens=max_new_tokens,
            num_verified=verify,
            on_step=status.update,
        )
    profile = replace(planned.profile, dtype=dtype, device=device, quantize=quantize)
    if html:
        html.write_text(report(planned), encoding="utf-8")
    if out:
        profile.save(out)
    print(json.dumps(profile.to_dict()) if as_json else _text(planned, out, html))
    if not planned.sound and loaded.info.exact == "bitwise":
        raise typer.Exit(FAILED)


def split_specs(words: str) -> list[str]:
    """`lookup:max_ngram=4,min_ngram=2,suffix` as specs: a part with `=` belongs to the spec before it."""
    specs: list[str] = []
    for part in filter(None, (part.strip() for part in words.split(","))):
        if "=" in part.partition(":")[0] and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    if not specs:
        raise OptionError("there is no drafter to plan with; name some with --drafters lookup,suffix")
    return specs


def _text(planned: Planned, out: Path | None, html: Path | None) -> str:
    table, batch = planned.table, int(planned.settings["batch"])
    lines = [f"{len(table.samples)} samples, {table.rounds(PLAIN).tokens} tokens; predicted at batch size {batch}:", ""]
    lines.append(f"{'setting':<28}{'tokens/round':>13}{'tok/s':>9}{'x plain':>9}  9 in 10 lie in")
    for setting in [*_few(table, batch), PLAIN]:
        one, gain = table.priced(setting, batch), table.speedup(setting, batch)
        shown = f"{setting!s:<28}{one.tokens_per_round:>13.2f}{one.speed:>9.1f}{gain:>9.2f}"
        lines.append(f"{shown}  {spread(table, setting, batch)}" if setting != PLAIN else shown)
    where = "in the report" if html else "in a report: --html FILE"
    lines += ["", f"the best {SHOWN} of each drafter; all {len(table.found)} settings at every batch size are {where}"]
    if planned.verified:
        lines += [
            "",
            f"{'run for real':<28}{'predicted':>11}{'measured':>9}  x plain: {'predicted':>9}{'measured':>9}  text",
        ]
        lines += [_run_line(one, planned.verified[0]) for one in planned.verified]
    profile = planned.profile
    if note := pace_note(planned.verified):
        lines += [note]
    lines += ["", f"recommended: {recommended(profile)}"]
    lines += [f"  {profile.about['why']}"]
    lines += [f"profile: {out} (outrider generate --profile {out})"] if out else []
    lines += [f"report: {html}"] if html else []
    return "\n".join(lines)


def _few(table: Table, batch: int) -> list[Setting]:
    """The best settings of every drafter, the fastest drafter first."""
    drafters = [setting.drafter for setting in table.best_of_each(batch) if setting != PLAIN]
    ranked = table.ranked(batch)
    return [s for name in drafters for s in [s for s in ranked if s.drafter == name][:SHOWN]]


def _run_line(one: Verified, plain: Verified) -> str:
    predicted = f"{one.predicted:.1f}" if one.predicted else "-"
    gain = f"{one.speed / plain.speed:.2f}" if plain.speed and not one.differs else "-"
    verdict = "equal" if not one.differs else f"DIFFERS on {', '.join(one.differs)}"
    hoped = f"{one.predicted / plain.predicted:.2f}" if one.predicted and plain.predicted else "-"
    return f"{one.name:<28}{predicted:>11}{one.speed:>9.1f}{'':>11}{hoped:>9}{gain:>9}  {verdict}"
