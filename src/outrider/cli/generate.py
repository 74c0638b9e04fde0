"""`outrider generate`: one prompt to text, with everything that a request and an engine can be told."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.api import load
from outrider.cli.figures import method, policy_lines, summary, versus
from outrider.cli.options import with_options
from outrider.cli.play import Comparison, as_dict, compare, play, warm_up
from outrider.cli.profiles import with_profile
from outrider.cli.quiet import quiet_loading
from outrider.cli.structure import Choice, JsonSchema, Lark, Regex, constrain, read_structure
from outrider.cli.terminal import legend, notes_console, show, text_console
from outrider.cli.tree import most_instructive, show_round
from outrider.engine.completion import Completion, TokenEvent
from outrider.engine.engine import Engine
from outrider.engine.request import Prompt
from outrider.engine.trace import RoundTrace
from outrider.errors import OptionError, PromptError
from outrider.files import check_writable
from outrider.traces.file import write_trace

PromptText = Annotated[str | None, typer.Argument(help="The text to go on from; `-` reads it from stdin.")]
PromptFile = Annotated[Path | None, typer.Option("--file", help="Read the prompt from this file instead.")]
Chat = Annotated[bool, typer.Option("--chat", help="The prompt is a message; use the model's chat template.")]
Compare = Annotated[bool, typer.Option("--compare", help="Run it again without speculation; exit 1 on a defect.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the text.")]
ShowTree = Annotated[bool, typer.Option("--show-tree", help="Also print one round, the most telling one, as a tree.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Append one JSON line a round, for `outrider watch`.")]
TracePrompt = Annotated[bool, typer.Option("--trace-prompt", help="The trace also has the prompt.")]
ProfileFile = Annotated[Path | None, typer.Option("--profile", help="Target, drafter and policy from `outrider plan`.")]
Explain = Annotated[bool, typer.Option("--explain-policy", help="Also print why rounds drafted what they did.")]
ShowParams = Annotated[bool, typer.Option("--show-params", help="Also print the effective settings.")]


def register(app: typer.Typer) -> None:
    app.command()(with_options(generate))


def generate(
    context: typer.Context,
    prompt: PromptText = None,
    *,
    file: PromptFile = None,
    chat: Chat = False,
    with_plain: Compare = False,
    as_json: AsJson = False,
    show_params: ShowParams = False,
    show_tree: ShowTree = False,
    json_schema: JsonSchema = None,
    regex: Regex = None,
    choice: Choice = None,
    grammar: Lark = None,
    trace: Trace = None,
    trace_prompt: TracePrompt = False,
    profile: ProfileFile = None,
    explain_policy: Explain = False,
    engine: dict[str, Any],
    sampling: dict[str, Any],
) -> None:
    """Write text. The text goes to stdout as it comes, the figures to stderr."""
    if "logprobs" in sampling and not as_json:
        raise OptionError("logprobs are only shown with --json; add it, or leave out --logprobs")
    check_tracing(trace, trace_prompt)
    structure = read_structure(json_schema, regex, choice, grammar)
    text = read_prompt(prompt, file)
    request: Prompt = [{"role": "user", "content": text}] if chat else text
    if profile:
        engine = with_profile(context, profile, engine)
    rounds = list[RoundTrace]()
    with notes_console().status("loading"), quiet_loading():
        ready = load(**engine, on_round=rounds.append if show_tree or explain_policy else None)
        if with_plain:
            warm_up(ready, request)
    if trace is not None:
        write_trace(ready, trace, prompts=trace_prompt)
    rounds.clear()  # of the warm-up
    constrained = constrain(ready, request, structure, sampling)
    completion = _run(ready, request, constrained, stream=not as_json)
    telling, num_rounds, reasons = most_instructive(rounds), len(rounds), policy_lines(rounds)
    comparison = _compare(ready, request, constrained, completion) if with_plain else None
    if explain_policy:
        notes_console().print("\n".join(reasons), style="dim", markup=False)
    if as_json:
        tree = {"round": telling and telling.to_dict()} if show_tree else {}
        print(json.dumps({**as_dict(completion), "comparison": comparison and comparison.to_dict(), **tree}))
    else:
        _print_figures(completion, comparison, show_params)
        if show_tree:
            _print_tree(ready, telling, num_rounds)
    if comparison and comparison.must_be_equal and not comparison.equal:
        raise typer.Exit(1)


def _print_tree(engine: Engine, telling: RoundTrace | None, num_rounds: int) -> None:
    tokenizer = engine.target.tokenizer
    if telling is None:
        notes_console().print("no tree to show: nothing was drafted", markup=False)
    elif tokenizer is not None:
        show_round(telling, num_rounds, tokenizer.decode, notes_console())


def check_tracing(trace: Path | None, trace_prompt: bool) -> None:
    """Raises OptionError for a file that cannot be written, before a model is loaded."""
    check_writable(trace, "--trace")
    if trace is None and trace_prompt:
        raise OptionError("--trace-prompt says what --trace FILE shall hold; give a file, or leave it out")


def _compare(engine: Engine, prompt: Prompt, sampling: dict[str, Any], completion: Completion) -> Comparison:
    with notes_console().status("the same without speculation"):
        return compare(engine, prompt, sampling, completion)


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """The prompt's text from where the user put it. Raises OptionError or PromptError."""
    if (prompt is None) == (file is None):
        raise OptionError("give one prompt: as an argument, as --file PATH, or as - to read it from stdin")
    try:
        text = file.read_text("utf-8") if file else sys.stdin.read() if prompt == "-" else str(prompt)
    except UnicodeDecodeError as error:
        raise PromptError(f"the prompt in {file or 'stdin'} is not UTF-8 text ({error.reason})") from None
    if not text:
        raise PromptError("the prompt is empty; give at least one character")
    return text


def _run(engine: Engine, prompt: Prompt, sampling: dict[str, Any], *, stream: bool) -> Completion:
    """The completion; its text on stdout as it comes, tokens told apart by colour if that is a terminal."""
    console = text_console()
    if stream and console.is_terminal:
        notes_console().print(legend(console))

    def on_event(event: TokenEvent) -> None:
        if stream:
            show(event, console)

    completion = play(engine, prompt, sampling, on_event)
    if stream:
        console.print()
    return completion


def _print_figures(completion: Completion, comparison: Comparison | None, show_params: bool) -> None:
    notes = notes_console()
    notes.print(method(completion), style="dim", markup=False)
    notes.print(summary(completion), markup=False)
    if comparison:
        notes.print(versus(comparison), markup=False)
    if show_params:
        settings = completion.effective_params.items()
        notes.print("  ".join(f"{name}={json.dumps(value)}" for name, value in settings), style="dim", markup=False)
