"""`outrider bench`: how fast, beside proof that the texts are the same. Exit code 1 if they are not."""

import json
import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from outrider.bench.report import show
from outrider.bench.runner import run_bench
from outrider.bench.runs import Run
from outrider.bench.setup import set_up
from outrider.bench.store import restore_runs, save_runs
from outrider.cli.options import DEFAULT_DRAFTER, DEFAULT_TARGET, Quantize
from outrider.cli.quiet import quiet_loading
from outrider.errors import OptionError, did_you_mean
from outrider.files import check_writable
from outrider.prompts import OWN, load_prompts
from outrider.targets.loading import Backend as BackendName
from outrider.targets.loading import choose_backend

FAILED, INTERRUPTED = 1, 130

Target = Annotated[str, typer.Option(help="The model whose words are wanted.")]
Drafter = Annotated[list[str] | None, typer.Option(help="A drafter's name or spec, or a smaller model. Repeatable.")]
Suite = Annotated[str, typer.Option(help=f"Prompts: {OWN!r}, or a .jsonl file.")]
Kinds = Annotated[str | None, typer.Option(help="Only prompts of these kinds, with commas between them.")]
Limit = Annotated[int | None, typer.Option("--num-prompts", help="At most so many prompts, from all kinds in turn.")]
MaxNewTokens = Annotated[int, typer.Option(help="Tokens to write per run.")]
MaxDepth = Annotated[int | None, typer.Option(help="Most tokens drafted in a round; default the drafter's own.")]
Policy = Annotated[str, typer.Option(help="How much to speculate: fixed, or auto (as deep as it pays).")]
Repeats = Annotated[int, typer.Option(help="How often everything is run.")]
Threads = Annotated[int | None, typer.Option(help="Threads of all systems; default torch's.")]
Dtype = Annotated[str | None, typer.Option(help="Of all weights; default the checkpoint's.")]
Device = Annotated[str, typer.Option(help="Where everything runs.")]
QuantizeTo = Annotated[Quantize | None, typer.Option("--quantize", help="Of our target alone: `int8`.")]
Against = Annotated[
    str | None,
    typer.Option(help="Whom to compare with, with commas: transformers, llama.cpp, none. [default: the backend's own]"),
]
Backend = Annotated[BackendName, typer.Option(help="What scores for us: torch, llama.cpp (GGUF files), or auto.")]
BackendOptions = Annotated[str | None, typer.Option(help="Of llama.cpp, such as threads=2,cache_type=q8_0.")]
PEERS = {"torch": "transformers", "llama.cpp": "llama.cpp"}
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write every single run to this file, as it grows.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the --json file, if it is there.")]


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    target: Target = DEFAULT_TARGET,
    drafter: Drafter = None,
    suite: Suite = OWN,
    kinds: Kinds = None,
    num_prompts: Limit = None,
    max_new_tokens: MaxNewTokens = 64,
    max_depth: MaxDepth = None,
    policy: Policy = "fixed",
    repeats: Repeats = 3,
    threads: Threads = None,
    dtype: Dtype = None,
    device: Device = "cpu",
    quantize: QuantizeTo = None,
    backend: Backend = "auto",
    backend_options: BackendOptions = None,
    against: Against = None,
    json_file: JsonFile = None,
    resume: Resume = False,
) -> None:
    """Compare speeds with plain decoding and other programs.

    All on the same weights and prompts, each speed beside the equality check of the same runs; the last line is one
    JSON object.
    """
    if max_depth is not None and max_depth < 1:
        raise OptionError(f"max_depth is {max_depth}; it must be at least 1 (plain decoding is measured anyway)")
    if resume and json_file is None:
        raise OptionError("--resume needs --json FILE, the file to go on from")
    check_writable(json_file, "--json")
    use_threads(threads)
    chosen = choose_backend(target, backend, dtype=dtype, device=device, quantize=quantize)[0]
    peers = _peers(against, chosen)
    prompts = load_prompts(suite, kinds.split(",") if kinds else None, num_prompts)
    drafters = drafter or [DEFAULT_DRAFTER]
    settings = {
        "target": target,
        "suite": suite,
        "drafters": drafters,
        "max_depth": max_depth,
        "max_new_tokens": max_new_tokens,
        "policy": policy,
        "quantize": quantize,
        "backend": chosen,
        "against": ",".join(peers) or "none",
    }
    earlier = restore_runs(json_file, settings) if resume and json_file else []
    with quiet_loading():
        ready = set_up(
            target,
            drafters,
            dtype=dtype,
            device=device,
            quantize=quantize,
            max_depth=max_depth,
            policy=policy,
            backend=backend,
            backend_options=backend_options,
            against=peers,
        )
    console = Console(stderr=True)
    for note in ready.notes:
        console.print(note, markup=False)
    total, done = len(ready.systems) * len(prompts) * repeats, list[Run](earlier)
    with console.status("warming up") as status, quiet_loading():

        def on_run(run: Run) -> None:
            done.append(run)
            if json_file and len(done) % len(ready.systems) == 0:
                save_runs(json_file, settings, done)
            status.update(
                f"{len(done)} of {total} runs; last: {run.system} on {run.prompt_id}, {run.timing.rate:.1f} tok/s"
            )

        report = run_bench(
            ready,
            prompts,
            max_new_tokens=max_new_tokens,
            repeats=repeats,
            settings=settings,
            earlier=earlier,
            on_run=on_run,
        )
    if json_file:
        json_file.write_text(json.dumps(report.to_dict(runs=True), indent=1), encoding="utf-8")
    show(report, Console(soft_wrap=True))
    if not report.complete:
        raise typer.Exit(INTERRUPTED)
    if not report.sound:
        raise typer.Exit(FAILED)


def _peers(against: str | None, backend: str) -> list[str]:
    """The families to compare with. Raises OptionError."""
    names = (against or PEERS[backend]).split(",")
    for name in names:
        if name not in (*PEERS.values(), "none"):
            raise OptionError(f"cannot compare against {name!r}{did_you_mean(name, (*PEERS.values(), 'none'))}")
    return [name for name in names if name != "none"]


def use_threads(threads: int | None) -> None:
    """So many threads from here on; None leaves torch's own number. Raises OptionError."""
    if threads is None:
        return
    if not 1 <= threads <= (os.cpu_count() or 1):
        raise OptionError(f"threads is {threads}; this machine has 1 to {os.cpu_count()}")
    torch.set_num_threads(threads)
