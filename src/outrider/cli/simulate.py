"""`outrider simulate`: what speculation would bring, from three numbers; no model is needed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.charts.lines import Line, line_chart
from outrider.charts.page import figure, heading, page, paragraph, table
from outrider.charts.terminal import bar_lines
from outrider.errors import OptionError
from outrider.simulate import Forecast, Played, best_depth, forecast, growth_curve, play

MOST_DEPTH = 256

Acceptance = Annotated[float, typer.Option(help="Chance that a drafted token is kept if those before it were.")]
Cost = Annotated[float, typer.Option(help="One draft pass, in target passes.")]
Depth = Annotated[int, typer.Option(help="Tokens drafted in a round.")]
Overhead = Annotated[float, typer.Option(help="Everything else in a round, in target passes.")]
Growth = Annotated[
    str | None,
    typer.Option(
        "--target-cost",
        metavar="WIDTH:COST,...",
        help="What the target's pass costs over several tokens, in passes over one. [default: 1 whatever the width]",
    ),
]
MaxDepth = Annotated[int, typer.Option(help="Depths that are looked at for the best one.")]
Rounds = Annotated[int, typer.Option(help="Rounds that are played to check the formula.")]
Seed = Annotated[int, typer.Option(help="Of the played rounds.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a page with the plot to this file.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the plot alone to this file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    acceptance: Acceptance,
    cost: Cost = 0.0,
    depth: Depth = 4,
    overhead: Overhead = 0.0,
    target_cost: Growth = None,
    max_depth: MaxDepth = 16,
    rounds: Rounds = 20_000,
    seed: Seed = 0,
    html: Html = None,
    svg: Svg = None,
    as_json: AsJson = False,
) -> None:
    """Tell what speculation should bring, by the formula.

    Tokens a round and speed-up, checked by played rounds, and the depth that would be best.
    """
    for name, value in (("depth", depth), ("max_depth", max_depth)):
        if not 0 <= value <= MOST_DEPTH:
            raise OptionError(f"{name} is {value}; it must be from 0 to {MOST_DEPTH}")
    curve = _read_growth(target_cost)
    told = forecast(acceptance, depth, cost, overhead=overhead, target_cost=curve)
    played = play(told, acceptance, rounds, seed)
    best = best_depth(acceptance, cost, max_depth=max_depth, overhead=overhead, target_cost=curve)
    line = [forecast(acceptance, d, cost, overhead=overhead, target_cost=curve) for d in range(1, max_depth + 1)]
    plot = _plot(line)
    if svg:
        svg.write_text(plot, encoding="utf-8")
    if html:
        html.write_text(_page(acceptance, cost, told, played, best, plot, line), encoding="utf-8")
    print(json.dumps(_as_dict(told, played, best, line)) if as_json else _text(told, played, best, line))


def _read_growth(words: str | None) -> Callable[[int], float] | None:
    if words is None:
        return None
    try:
        pairs = [word.split(":") for word in words.split(",")]
        return growth_curve([(int(width), float(passes)) for width, passes in pairs])
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"target_cost is {words!r}; write WIDTH:COST pairs such as 2:1.1,8:2.3") from None


def _text(told: Forecast, played: Played, best: Forecast, line: list[Forecast]) -> str:
    head = [
        f"depth {told.depth}: {told}",
        f"played {played.rounds:,} rounds: {played.tokens:.3f} ± {played.error:.3f} tokens a round, "
        f"{played.speedup:.2f}x (formula {told.tokens:.3f})",
        _advice(best),
    ]
    bars = bar_lines([(str(one.depth), one.speedup) for one in line], level=1.0, unit="x")
    return "\n".join([*head, *(["", "speed-up by depth (│ is plain decoding)", *bars] if bars else [])])


def _advice(best: Forecast) -> str:
    if best.depth == 0:
        return "best: do not speculate; no depth is faster than plain decoding"
    return f"best depth: {best.depth}, {best.tokens:.2f} tokens a round, {best.speedup:.2f}x plain decoding"


def _as_dict(told: Forecast, played: Played, best: Forecast, line: list[Forecast]) -> dict[str, Any]:
    def plain(one: Forecast) -> dict[str, Any]:
        return {**vars(one), "cost": one.cost, "speedup": one.speedup}

    return {
        "forecast": plain(told),
        "played": {**vars(played), "speedup": played.speedup},
        "best": plain(best),
        "by_depth": [plain(one) for one in line],
    }


def _plot(line: list[Forecast]) -> str:
    points = [(float(one.depth), one.speedup) for one in line]
    return line_chart(
        [Line("speed-up", points)] if points else [],
        label="Speed-up over plain decoding by depth",
        x_label="tokens drafted in a round",
        y_label="times plain decoding",
        level=1.0,
    )


def _page(
    acceptance: float, cost: float, told: Forecast, played: Played, best: Forecast, plot: str, line: list[Forecast]
) -> str:
    rows = [
        [str(one.depth), f"{one.tokens:.2f}", f"{one.target:.2f}", f"{one.draft:.2f}", f"{one.speedup:.2f}"]
        for one in line
    ]
    return page(
        "Speculation simulated",
        [
            heading("Speculation, simulated", 1),
            paragraph(f"acceptance {acceptance:g}, one draft pass {cost:g} target passes", "quiet"),
            paragraph(_advice(best).capitalize() + "."),
            figure(plot, f"At depth {told.depth}: {told}."),
            paragraph(f"{played.rounds:,} played rounds gave {played.tokens:.3f} ± {played.error:.3f} tokens a round."),
            heading("By depth"),
            table(["depth", "tokens a round", "target passes", "draft passes", "speed-up"], rows),
        ],
    )
