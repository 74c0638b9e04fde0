"""`outrider sweep`: every drafter, rule and temperature, as a table for docs. Exit code 1 if a text differs."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from outrider.api import named_drafter
from outrider.bench.sweep import Entry, Sweep
from outrider.bench.sweep_table import Line, lines, markdown, tables
from outrider.certify.environment import environment
from outrider.cli.bench import use_threads
from outrider.cli.certify import numbers
from outrider.cli.options import DEFAULT_TARGET, PolicyName, Quantize
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import text_console
from outrider.errors import OptionError
from outrider.files import check_writable, write_whole
from outrider.prompts import OWN, load_prompts

FAILED, INTERRUPTED = 1, 130

Target = Annotated[str, typer.Option(help="The model whose words are wanted.")]
Drafters = Annotated[
    list[str] | None,
    typer.Option("--drafter", help="A drafter's name or spec, or a model; default all that need none. Repeatable."),
]
NEEDS_NO_MODEL = ("lookup", "suffix", "recycle", "self", "mix:suffix+recycle")
Suite = Annotated[str, typer.Option(help=f"Prompts: {OWN!r}, or a .jsonl file.")]
Kinds = Annotated[str | None, typer.Option(help="Only prompts of these kinds, with commas between them.")]
Limit = Annotated[int | None, typer.Option("--num-prompts", help="At most so many, from all kinds in turn.")]
Temperatures = Annotated[str, typer.Option("--temperature", help="Temperatures, with commas between them.")]
Rules = Annotated[str, typer.Option("--rule", help="Acceptance rules, with commas between them.")]
MaxNewTokens = Annotated[int, typer.Option(help="Tokens to write per run.")]
Policy = Annotated[PolicyName, typer.Option(help="How much to speculate.")]
QuantizeTo = Annotated[Quantize | None, typer.Option("--quantize", help="Of the target: `int8`; default as it is.")]
Threads = Annotated[int | None, typer.Option(help="Threads; default torch's.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Every run, written as it ends; --resume goes on from it.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Leave out the runs that the --json file already holds.")]


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def sweep(
    drafter: Drafters = None,
    target: Target = DEFAULT_TARGET,
    suite: Suite = OWN,
    kinds: Kinds = None,
    num_prompts: Limit = None,
    temperature: Temperatures = "0,0.7,1",
    rule: Rules = "identical,rejection,block",
    max_new_tokens: MaxNewTokens = 64,
    policy: Policy = "fixed",
    quantize: QuantizeTo = None,
    threads: Threads = None,
    json_file: JsonFile = None,
    resume: Resume = False,
) -> None:
    """Compare all drafters, rules and temperatures.

    Tokens per round, drafting time and speed of each, as tables; as Markdown where the output is no terminal.
    """
    if resume and json_file is None:
        raise OptionError("--resume needs --json FILE, the file to go on from")
    temperatures, rules = list(dict.fromkeys(numbers("temperature", temperature, float))), rule.split(",")
    prompts = load_prompts(suite, kinds.split(",") if kinds else None, num_prompts)
    drafters = {spec: named_drafter(spec) for spec in drafter or NEEDS_NO_MODEL}
    use_threads(threads)
    check_writable(json_file, "--json")
    about = {"target": target, "quantize": quantize, "policy": policy, "max_new_tokens": max_new_tokens}
    about["prompts"] = hashlib.sha256(repr(sorted((p.id, str(p.prompt)) for p in prompts)).encode()).hexdigest()[:16]
    entries = _earlier(json_file, about) if resume and json_file else list[Entry]()
    console = Console(stderr=True)
    with console.status("loading") as status, quiet_loading():
        from outrider.targets.hf.loader import load_target  # slow import: transformers

        loaded = load_target(target, quantize=quantize, max_rows=1)
        runs = Sweep(loaded, drafters, policy, max_new_tokens).run(prompts, temperatures, rules, [*entries])
        complete = True
        try:
            for entry in runs:
                entries.append(entry)
                status.update(f"{len(entries)} runs; last: {entry.drafter}, {entry.rule}, {entry.prompt_id}")
                if json_file:
                    runs_so_far = [dataclasses.asdict(one) for one in entries]
                    write_whole(json_file, json.dumps({"settings": about, "runs": runs_so_far}))
        except KeyboardInterrupt:
            complete = False
    found = lines(entries)
    print(_about(target, quantize, policy, len(prompts), max_new_tokens))
    print()
    _show(found)
    if not complete:
        print("interrupted: figures are of the runs until then")
        raise typer.Exit(INTERRUPTED)
    if any(line.num_equal < line.num_compared for line in found):
        raise typer.Exit(FAILED)


def _show(found: Sequence[Line]) -> None:
    console = text_console()
    if not console.is_terminal:
        print(markdown(found))
        return
    for table in tables(found):
        console.print(table, soft_wrap=False)
        console.print()


def _earlier(path: Path, about: dict[str, Any]) -> list[Entry]:
    """The runs in the file. Raises OptionError if there are none, or if they were made with other settings."""
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        settings, entries = found["settings"], [Entry(**value) for value in found["runs"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OptionError(f"cannot resume from {path}: {error}; leave out --resume to begin anew") from error
    if changed := [name for name, value in about.items() if settings.get(name) != value]:
        raise OptionError(f"{path} was made with another {', '.join(changed)}; leave out --resume to begin anew")
    return entries


def _about(target: str, quantize: str | None, policy: str, num_prompts: int, max_new_tokens: int) -> str:
    at = environment()
    return (
        f"{target}{f' in {quantize}' if quantize else ''}, policy {policy}, {num_prompts} prompts, {max_new_tokens} "
        f"tokens; {at['processor']}, {at['threads']} threads, torch {at['torch']}, {at['date']}"
    )
