"""`outrider demo`: a real model writes with speculation, then without, and the two are compared."""

from typing import Annotated

import typer

from outrider import models
from outrider.api import load
from outrider.cli.figures import one_line
from outrider.cli.options import DEFAULT_DRAFTER, DEFAULT_TARGET, PolicyName
from outrider.cli.play import compare, play, warm_up
from outrider.cli.quiet import quiet_loading
from outrider.cli.terminal import legend, show, text_console

PROMPT = '''\
# The sounds that animals make.
def cat():
    """Return the sound that a cat makes."""
    return "meow"


def dog():
    """Return the sound that a dog makes."""
    return "woof"


def cow():
    """'''

Target = Annotated[str, typer.Option(help="The model whose words are wanted.")]
DrafterName = Annotated[str, typer.Option(help="What drafts; see `outrider drafters`.")]
Policy = Annotated[PolicyName, typer.Option(help="`fixed` shows every draft, `auto` only those that pay.")]
Prompt = Annotated[str, typer.Option(help="The text to go on from.", show_default=False)]
Tokens = Annotated[int, typer.Option(help="How much to write.", min=1)]


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    target: Target = DEFAULT_TARGET,
    drafter: DrafterName = DEFAULT_DRAFTER,
    policy: Policy = "fixed",
    prompt: Prompt = PROMPT,
    tokens: Tokens = 128,
) -> None:
    """Watch a real model write with speculation, and without.

    Exit code 1 if the tokens differ.
    """
    console = text_console()
    console.print(
        f"target {target}, drafter {drafter}, policy {policy}, greedy, {tokens} tokens", style="dim", markup=False
    )
    if target in models.MODELS and models.locate(target) is None:
        models.pull(target, lambda text: console.print(text, style="dim", markup=False))
    with console.status("loading"), quiet_loading():
        engine = load(target, drafter, policy=policy)
        warm_up(engine, prompt)
    console.print(legend(console), end="\n\n")
    console.print(prompt, end="", markup=False)
    sampling = {"temperature": 0.0, "max_new_tokens": tokens}
    completion = play(engine, prompt, sampling, lambda event: show(event, console, marks=True))
    console.print("\n")
    with console.status("the same without speculation"):
        comparison = compare(engine, prompt, sampling, completion)
    console.print(one_line(comparison), markup=False)
    if comparison.must_be_equal and not comparison.equal:
        raise typer.Exit(1)
