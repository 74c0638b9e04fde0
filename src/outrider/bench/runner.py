"""Runs a benchmark: growth of the pass, interleaved runs, equality, ratios, reasons."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outrider.bench.equality import Arbiter
from outrider.bench.growth import pass_seconds
from outrider.bench.report import Report
from outrider.bench.runs import Run, done_by_all, measure
from outrider.bench.setup import Bench
from outrider.bench.summary import figures, ratio, ratio_pairs, rests_on, text_pairs, why
from outrider.certify.environment import environment
from outrider.errors import OptionError
from outrider.prompts import TestPrompt


def run_bench(
    bench: Bench,
    prompts: Sequence[TestPrompt],
    *,
    max_new_tokens: int,
    repeats: int,
    settings: Mapping[str, Any] | None = None,
    earlier: Sequence[Run] = (),
    on_run: Callable[[Run], None] = lambda run: None,
) -> Report:
    """The report of all runs; after an interrupt, of those until then. earlier: runs that need not be made again.

    Raises OptionError, PromptError.
    """
    for name, value in (("max_new_tokens", max_new_tokens), ("repeats", repeats)):
        if value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")
    encoded = [(prompt, prompt.encode(bench.target.tokenizer)) for prompt in prompts]
    known = done_by_all(earlier, bench.systems)
    runs = [run for run in earlier if (run.prompt_id, run.repeat) in known]
    growth, complete = {}, True
    try:
        growth = pass_seconds(bench.target, encoded[0][1])
        for run in measure(bench.systems, encoded, max_new_tokens, repeats, on_run, known):
            runs.append(run)
    except KeyboardInterrupt:
        complete = False
    about = {
        "target": bench.target.info.name,
        "dtype": str(bench.target.info.dtype).removeprefix("torch."),
        "quantize": bench.target.info.quantize,
        "exact": bench.target.info.exact,
        "max_new_tokens": max_new_tokens,
        "repeats": repeats,
        "prompts": len(encoded),
        **(settings or {}),
    }
    whole = done_by_all(runs, bench.systems)
    kept = [run for run in runs if (run.prompt_id, run.repeat) in whole]
    return _report(bench, about, growth, kept, encoded, complete)


def _report(
    bench: Bench,
    settings: Mapping[str, Any],
    growth: Mapping[int, float],
    runs: Sequence[Run],
    prompts: Sequence[tuple[TestPrompt, Sequence[int]]],
    complete: bool,
) -> Report:
    if not runs:
        return Report(settings, environment(), growth, [], [], [], [], [], complete)
    arbiter = Arbiter(bench.target, bench.model, bench.peers, bench.other_weights)
    seen = {run.prompt_id for run in runs}
    tokens = {prompt.id: ids for prompt, ids in prompts if prompt.id in seen}
    equalities = [arbiter.compare(one, other, runs, tokens) for one, other in text_pairs(bench.systems)]
    ratios = [
        ratio(one.name, other.name, runs, rests_on(one, other, equalities)) for one, other in ratio_pairs(bench.systems)
    ]
    all_figures = {system.name: figures(system.name, runs) for system in bench.systems}
    reasons = [
        why(all_figures[one.reference], all_figures[one.system], one.value)
        for one in ratios
        if one.value is not None and one.reference == "outrider plain"
    ]
    return Report(
        settings,
        environment(),
        growth,
        list(all_figures.values()),
        equalities,
        ratios,
        [reason for reason in reasons if reason],
        runs,
        complete,
    )
