"""`outrider quality`: how far int8 weights move a model from the original, on one's own texts."""

import dataclasses
import json
from typing import Annotated

import torch
import typer
from rich.console import Console

from outrider.bench.quality import Reading, compare, read_texts
from outrider.certify.environment import environment
from outrider.cli.options import DEFAULT_TARGET, Quantize
from outrider.cli.quiet import quiet_loading
from outrider.errors import OptionError
from outrider.prompts import OWN, TestPrompt, load_prompts

Target = Annotated[str, typer.Option(help="The model.")]
To = Annotated[Quantize, typer.Option("--quantize", help="What it is compared with.")]
Texts = Annotated[str, typer.Option(help=f"What both read: {OWN!r}, or a .jsonl file of prompts.")]
Limit = Annotated[int | None, typer.Option("--num-prompts", help="At most so many, from all kinds in turn.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Longest = Annotated[int, typer.Option("--max-tokens", help="Of each text, its first tokens.")]


def register(app: typer.Typer) -> None:
    app.command()(quality)


def quality(
    target: Target = DEFAULT_TARGET,
    quantize: To = "int8",
    texts: Texts = OWN,
    num_prompts: Limit = None,
    max_tokens: Longest = 512,
    as_json: AsJson = False,
) -> None:
    """Measure what smaller weights change in a model.

    Perplexity and agreement of first choices, before and after.
    """
    if max_tokens < 2:
        raise OptionError(f"max_tokens is {max_tokens}; a text needs at least 2")
    prompts = load_prompts(texts, None, num_prompts)
    console = Console(stderr=True)
    before, after = (_readings(target, how, prompts, max_tokens, console) for how in (None, quantize))
    found = compare(before, after)
    if as_json:
        print(json.dumps({"target": target, "quantize": quantize, **dataclasses.asdict(found), "at": environment()}))
        return
    print(
        f"{target} over {found.num_tokens} tokens: perplexity {found.perplexity_before:.3f} as it is, "
        f"{found.perplexity_after:.3f} in {quantize}; first choices equal {found.agreement:.1%}; "
        f"log-probability of the text changes by {found.mean_change:.4f} on average"
    )


def _readings(
    name: str, quantize: str | None, prompts: list[TestPrompt], max_tokens: int, console: Console
) -> list[Reading]:
    from outrider.targets.hf.loader import load_target  # slow import: transformers

    with console.status(f"loading {name} {quantize or ''}") as status, quiet_loading(), torch.inference_mode():
        target = load_target(name, quantize=quantize, max_rows=1)
        encoded = [prompt.encode(target.tokenizer)[:max_tokens] for prompt in prompts]
        wanted = [tokens for tokens in encoded if len(tokens) > 1]
        return read_texts(
            target, wanted, lambda done: status.update(f"{done} of {len(wanted)} texts read by {name} {quantize or ''}")
        )
