"""`outrider widths`: how much a pass grows with its width here, per backend, and from what acceptance drafts pay."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from outrider.bench.breakeven import WidthCost, width_costs
from outrider.bench.growth import pass_seconds
from outrider.bench.reading import Reading, weights_read
from outrider.certify.environment import environment
from outrider.cli.certify import numbers
from outrider.cli.options import DEFAULT_TARGET, Quantize
from outrider.cli.quiet import quiet_loading
from outrider.errors import OptionError
from outrider.prompts import load_prompts
from outrider.targets.base import Target
from outrider.targets.loading import load_target

Model = Annotated[str, typer.Option("--target", help="The model whose passes are timed.")]
Backends = Annotated[list[str] | None, typer.Option("--backend", help="torch, llama.cpp or auto. Repeatable.")]
BackendOptions = Annotated[str | None, typer.Option(help="Of llama.cpp, such as threads=2,cache_type=q8_0.")]
Widths = Annotated[str, typer.Option(help="Tokens in a pass, with commas between them; 1 is always among them.")]
Repeats = Annotated[int, typer.Option(help="How often each width is timed; the median counts.")]
Dtype = Annotated[str | None, typer.Option(help="Of torch's weights; default the checkpoint's.")]
QuantizeTo = Annotated[Quantize | None, typer.Option("--quantize", help="Of torch's weights: `int8`.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]


def register(app: typer.Typer) -> None:
    app.command()(widths)


def widths(
    target: Model = DEFAULT_TARGET,
    backend: Backends = None,
    backend_options: BackendOptions = None,
    widths: Widths = "1,2,4,8,16,32",
    repeats: Repeats = 5,
    dtype: Dtype = None,
    quantize: QuantizeTo = None,
    json_file: JsonFile = None,
) -> None:
    """Time passes of several widths; say when drafting pays.

    Behind 256 tokens of context.
    """
    chosen = sorted({1, *numbers("widths", widths, int)})
    if chosen[0] < 1 or repeats < 1:
        raise OptionError(f"widths and repeats must be at least 1; they are {widths} and {repeats}")
    found, reading = dict[str, list[WidthCost]](), dict[str, Reading | None]()
    for name in dict.fromkeys(backend or ["auto"]):
        with quiet_loading():
            own = {"dtype": dtype, "quantize": quantize} if name == "torch" or quantize else {}
            options: dict[str, Any] = own or {"backend_options": backend_options}
            loaded = load_target(target, backend=name, max_rows=1, **options)
        found[name] = width_costs(pass_seconds(loaded, _context(loaded), chosen, repeats))
        reading[name] = weights_read(loaded)
    console = Console(soft_wrap=True)
    for name, costs in found.items():
        console.print(_table(f"{target} by {name}, {torch.get_num_threads()} threads", costs))
        if told := reading[name]:
            console.print(_in_words(told, costs[0]), markup=False)
    result = {"target": target, "environment": environment(), "backends": _plain(found), "reading": _as_dicts(reading)}
    if json_file:
        json_file.write_text(json.dumps(result, indent=1), encoding="utf-8")
    console.file.write(json.dumps(result) + "\n")


def _context(target: Target) -> list[int]:
    """A prompt of our own, repeated until it is long enough."""
    tokens = load_prompts(limit=1)[0].encode(target.tokenizer)
    return (tokens * (256 // len(tokens) + 1))[:256]


def _table(title: str, costs: list[WidthCost]) -> Table:
    table = Table("tokens", "ms", "passes", "a chain pays from", title=title)
    for cost in costs:
        pays = "never" if cost.break_even is None else f"{cost.break_even:.0%} kept" if cost.width > 1 else ""
        table.add_row(str(cost.width), f"{cost.seconds * 1000:.1f}", f"{cost.growth:.2f}", pays)
    return table


def _in_words(reading: Reading, one: WidthCost) -> str:
    return (
        f"reading the weights once ({reading.num_bytes / 1e6:.0f} MB at {reading.bytes_per_second / 1e9:.1f} GB/s) "
        f"takes {1000 * reading.seconds:.1f} ms; one token takes {one.seconds / reading.seconds:.2f} times that"
    )


def _as_dicts(reading: dict[str, Reading | None]) -> dict[str, Any]:
    return {name: one and {**asdict(one), "seconds": one.seconds} for name, one in reading.items()}


def _plain(found: dict[str, list[WidthCost]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [asdict(cost) for cost in costs] for name, costs in found.items()}
