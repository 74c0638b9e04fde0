"""`outrider drafters`: what drafts there are, which layers make the best `self`, what `recycle` may begin with."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from outrider.cli.outline import drafters as told_drafters
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import notes_console, text_console, wrapped
from outrider.errors import OptionError
from outrider.files import check_writable
from outrider.models import DEFAULT_TARGET
from outrider.prompts import OWN, load_prompts

if TYPE_CHECKING:
    from outrider.bench.layers import Trial

OPENERS = Path(__file__).parent.parent / "data" / "openers.jsonl"
NUM_TEXTS, NUM_TOKENS = 4, 48  # the texts that a search is made on: the target's own, greedy

Target = Annotated[str, typer.Option(help="The model that is to draft for itself.")]
Prompts = Annotated[str, typer.Option(help=f"A .jsonl file of prompts to write sample text for, or {OWN!r}.")]
Dtype = Annotated[str | None, typer.Option(help="Of the weights; default the checkpoint's.")]
Device = Annotated[str, typer.Option(help="Where the target runs.")]
Out = Annotated[Path, typer.Option(help="The file to write.")]
Openers = Annotated[Path, typer.Option("--prompts", help="A .jsonl file of prompts that are answered for it.")]
Length = Annotated[int, typer.Option(help="Tokens to write per answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True, help=drafters.__doc__)
    group.callback()(drafters)
    group.command("tune-self")(tune_self)
    group.command("tune-recycle")(tune_recycle)
    app.add_typer(group, name="drafters")


def drafters(context: typer.Context) -> None:
    """List the drafters and their options.

    As --drafter takes them: NAME or NAME:option=value,option=value.
    """
    if context.invoked_subcommand:
        return
    for name, told in told_drafters().items():
        print(wrapped(f"{name:10}{told.about}", indent=10))
        for option in told.options:
            print(wrapped(f"{'':10}{option}", indent=14))


def tune_self(
    target: Target = DEFAULT_TARGET,
    prompts: Prompts = OWN,
    dtype: Dtype = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Try parts of a model's layers as its own drafter, on text that it writes; print what each would gain."""
    from outrider.bench.layers import LayerSearch, written  # slow imports: torch, transformers
    from outrider.engine.engine import Engine
    from outrider.targets.hf.loader import load_target

    notes = notes_console()
    chosen = load_prompts(prompts, limit=NUM_TEXTS)
    with notes.status("loading"), quiet_loading():
        model = load_target(target, dtype=dtype, device=device, max_rows=2 * NUM_TEXTS)
    with notes.status("writing sample text"):
        asked = [prompt.encode(model.tokenizer) for prompt in chosen]
        completions = Engine(model).generate_batch(asked, max_new_tokens=NUM_TOKENS, temperature=0.0)
    texts, num_prompts = written(completions)
    if not texts:
        raise OptionError(f"{target} ends its answers to {prompts} too soon to try drafts on; give other --prompts")
    trials: list[Trial] = []
    with notes.status("trying layers") as status:
        for trial in LayerSearch(model, texts, num_prompts).run():
            trials.append(trial)
            status.update(f"trying layers: {len(trials)} done, last {trial.spec}")
    show_trials(trials, as_json)


def tune_recycle(
    out: Out,
    target: Target = DEFAULT_TARGET,
    prompts: Openers = OPENERS,
    max_new_tokens: Length = 192,
    dtype: Dtype = None,
    device: Device = "cpu",
) -> None:
    """Let the model answer some prompts, and write what it put after which tokens, for `recycle` to begin with."""
    from outrider.drafters.recycle import RecycleDrafter  # slow imports: torch, transformers
    from outrider.engine.engine import Engine
    from outrider.targets.hf.loader import load_target

    check_writable(out, "--out")
    notes = notes_console()
    chosen = load_prompts(str(prompts))
    with notes.status("loading"), quiet_loading():
        model = load_target(target, dtype=dtype, device=device, max_rows=1)
    recycle = RecycleDrafter(shared=True)
    engine = Engine(model, recycle, policy="auto")
    num_tokens = 0
    with notes.status("writing") as status:
        for prompt in chosen:
            num_tokens += len(engine.generate(prompt.encode(model.tokenizer), max_new_tokens=max_new_tokens).token_ids)
            status.update(f"writing: {num_tokens} tokens")
    recycle.save(out)
    print(f"{num_tokens} tokens written; use: --drafter recycle:start={out}")


def show_trials(trials: "list[Trial]", as_json: bool) -> None:
    """The table, best first, and what to write on the command line."""
    ranked = sorted(trials, key=lambda trial: -trial.forecast.speedup)
    if as_json:
        rows = [{**dataclasses.asdict(one), "spec": one.spec, "speedup": one.forecast.speedup} for one in ranked]
        print(json.dumps({"best": ranked[0].spec, "trials": rows}))
        return
    table = Table(
        Column("drafter", overflow="fold"), "layers run", "agreement", "pass costs", "best depth", "predicted", box=None
    )
    for trial in ranked:
        depth = trial.forecast.depth
        gain = f"{trial.forecast.speedup:.2f}x plain" if depth else "does not pay"
        layers = f"{len(trial.layers)} of {trial.num_layers}"
        table.add_row(trial.spec, layers, f"{trial.agreement:.0%}", f"{trial.cost:.0%}", str(depth), gain)
    text_console().print(table)
    best = ranked[0]
    if best.forecast.depth == 0:
        print("none of these would be faster than plain decoding here; another drafter will do better")
    else:
        print(f"use: --drafter {best.spec}")
