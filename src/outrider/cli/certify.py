"""`outrider certify`: is the speculative text the plain text? Exit code 0 only if nothing is left unexplained."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.api import load
from outrider.certify.grid import Grid
from outrider.certify.records import Certificate, JobResult
from outrider.certify.report import show
from outrider.certify.runner import certify as run
from outrider.certify.store import restore, save
from outrider.cli.options import DEFAULT_DRAFTER, DEFAULT_TARGET, Quantize
from outrider.cli.quiet import quiet_loading
from outrider.errors import OptionError
from outrider.prompts import OWN, load_prompts
from outrider.targets.loading import Backend as BackendName

FAILED, INTERRUPTED = 1, 130

Target = Annotated[str, typer.Option(help="The model whose words are wanted.")]
Drafter = Annotated[str, typer.Option(help="What drafts: a drafter's name or spec, or a smaller model.")]
Prompts = Annotated[str, typer.Option(help=f"A .jsonl file of prompts, or {OWN!r}.")]
Kinds = Annotated[str | None, typer.Option(help="Only prompts of these kinds, with commas between them.")]
Limit = Annotated[int | None, typer.Option("--num-prompts", help="At most so many prompts, from all kinds in turn.")]
Temperature = Annotated[str, typer.Option(help="Temperatures, with commas between them; 0 is greedy.")]
Seeds = Annotated[int, typer.Option(help="How many seeds per prompt where temperature is above 0.")]
Rule = Annotated[str, typer.Option(help="The acceptance rule.")]
MaxNewTokens = Annotated[int, typer.Option(help="Tokens to write per run.")]
Dtype = Annotated[str | None, typer.Option(help="Of the weights; default the checkpoint's.")]
QuantizeTo = Annotated[Quantize | None, typer.Option("--quantize", help="Of the target: `int8`; default as it is.")]
Device = Annotated[str, typer.Option(help="Where the target runs.")]
Backend = Annotated[BackendName, typer.Option(help="What scores: torch, llama.cpp (GGUF files), or auto.")]
BackendOptions = Annotated[str | None, typer.Option(help="Of llama.cpp, such as threads=2,cache_type=q8_0.")]
Depth = Annotated[str, typer.Option(help="Depths to compare with plain decoding, with commas between them.")]
Batch = Annotated[int, typer.Option(help="Requests that share a pass.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="A sampling option for all runs: NAME=JSON. Repeatable.")]
Logprobs = Annotated[bool, typer.Option("--logprobs/--no-logprobs", help="Compare log-probabilities too.")]
FloorPrompts = Annotated[int, typer.Option("--floor", help="Prompts to run plain with another number of threads too.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the certificate to this file, as it grows.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the --json file.")]


def register(app: typer.Typer) -> None:
    app.command()(certify)


def certify(
    target: Target = DEFAULT_TARGET,
    drafter: Drafter = DEFAULT_DRAFTER,
    prompts: Prompts = OWN,
    kinds: Kinds = None,
    num_prompts: Limit = None,
    temperature: Temperature = "0",
    seeds: Seeds = 1,
    rule: Rule = "identical",
    max_new_tokens: MaxNewTokens = 64,
    dtype: Dtype = None,
    quantize: QuantizeTo = None,
    device: Device = "cpu",
    backend: Backend = "auto",
    backend_options: BackendOptions = None,
    depth: Depth = "4",
    batch: Batch = 4,
    set_: Set = None,
    logprobs: Logprobs = True,
    floor: FloorPrompts = 2,
    json_file: JsonFile = None,
    resume: Resume = False,
) -> None:
    """Prove that speculative runs write what plain runs write.

    Compares them token for token, and explains every difference or fails.
    """
    if resume and json_file is None:
        raise OptionError("--resume needs --json FILE, the file to go on from")
    temperatures = tuple(numbers("temperature", temperature, float))
    depths = tuple(numbers("depth", depth, int))
    grid = Grid(temperatures, seeds, depths, max_new_tokens, batch)
    chosen = load_prompts(prompts, kinds.split(",") if kinds else None, num_prompts)
    earlier = restore(json_file) if resume and json_file else None
    options = {**({"logprobs": 1} if logprobs else {}), **dict(setting(text) for text in set_ or ())}
    with quiet_loading():
        engine = load(
            target,
            drafter,
            rule=rule,
            dtype=dtype,
            device=device,
            quantize=quantize,
            max_rows=batch,
            policy="fixed",
            backend=backend,
            backend_options=backend_options,
        )
    console = Console(stderr=True)
    with console.status("comparing plain with speculative runs") as status:

        def on_result(result: JobResult, certificate: Certificate) -> None:
            done = f"{len(certificate.results)} of {certificate.num_jobs} runs, {certificate.num_tokens} tokens"
            status.update(f"{done}; last: {result.key}: {result.verdict}")
            if json_file:
                save(certificate, json_file)

        certificate = run(
            engine,
            chosen,
            grid,
            drafter=drafter,
            options=options,
            floor_prompts=floor,
            earlier=earlier,
            on_result=on_result,
        )
    show(certificate, Console(soft_wrap=True))
    if json_file:
        save(certificate, json_file)
    if certificate.interrupted and not certificate.faults and not certificate.count("NOT EXPLAINED"):
        raise typer.Exit(INTERRUPTED)
    if not certificate.passed:
        raise typer.Exit(FAILED)


def numbers(name: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    """`1,4,8` as numbers. Raises OptionError naming the part that is none."""
    found: list[Any] = []
    for part in text.split(","):
        try:
            found.append(kind(part))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise OptionError(f"{name} cannot be {part!r}; write {what}, or several with commas") from None
    return found


def setting(text: str) -> tuple[str, Any]:
    """`top_p=0.9` as a name and a value; the value is JSON, or else the very text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"cannot read {text!r}; write NAME=VALUE, such as top_p=0.9")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
