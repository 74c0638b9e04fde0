"""The simulator: the textbook's figures, the formula against played rounds, and the command."""

import json

import pytest

from helpers_cli import outrider
from outrider.errors import OptionError
from outrider.simulate import best_depth, forecast, growth_curve, play

TEXTBOOK = [(0.2, 0.05, 1.25, 1.04), (0.8, 0.05, 3.36, 2.80), (0.95, 0.5, 4.52, 1.51)]


@pytest.mark.parametrize(("acceptance", "cost", "tokens", "speedup"), TEXTBOOK)
def test_the_textbooks_figures(acceptance, cost, tokens, speedup):
    told = forecast(acceptance, 4, cost)
    assert (round(told.tokens, 2), round(told.speedup, 2)) == (tokens, speedup)
    shown = json.loads(outrider("simulate", "--acceptance", str(acceptance), "--cost", str(cost), "--json").out)
    assert (round(shown["forecast"]["tokens"], 2), round(shown["forecast"]["speedup"], 2)) == (tokens, speedup)


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("depth", [0, 1, 4, 9])
def test_played_rounds_agree_within_their_own_error(acceptance, depth):
    told = forecast(acceptance, depth, 0.1)
    played = play(told, acceptance, 4000, seed=3)
    assert abs(played.tokens - told.tokens) <= 4 * played.error + 1e-12
    wrong = forecast(min(1.0, acceptance + 0.1), depth, 0.1)  # the check can fail
    assert depth == 0 or acceptance in (1.0,) or abs(played.tokens - wrong.tokens) > 4 * played.error


def test_a_pass_that_grows_in_steps_moves_the_best_depth():
    flat = best_depth(0.9, 0.01)
    stepped = best_depth(0.9, 0.01, target_cost=growth_curve([(4, 1.05), (5, 2.5), (16, 2.6)]))
    assert stepped.depth == 3 or stepped.depth > 8
    assert flat.depth > 8


def test_the_curve_is_straight_between_points_and_beyond_them():
    curve = growth_curve([(4, 2.5), (8, 3.5)])
    assert [curve(n) for n in (1, 2, 4, 6, 8, 12)] == pytest.approx([1.0, 1.5, 2.5, 3.0, 3.5, 4.5])
    for bad in ([], [(0, 1.0)], [(4, -1.0)], [(4, float("nan"))]):
        with pytest.raises(OptionError, match="target costs are"):
            growth_curve(bad)


def test_the_command_says_what_it_found(tmp_path):
    svg, html = tmp_path / "plot.svg", tmp_path / "page.html"
    words = ["simulate", "--acceptance", "0.8", "--cost", "0.05", "--svg", str(svg), "--html", str(html)]
    seen = outrider(*words, "--rounds", "2000")
    assert seen.code == 0
    assert "3.36 tokens a round" in seen.out
    assert "2.80x" in seen.out
    assert "best depth: 8" in seen.out
    assert svg.read_text("utf-8").startswith("<svg")
    assert "<svg" in html.read_text("utf-8")
    assert "http" not in html.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "do not speculate" in outrider("simulate", "--acceptance", "0.5", "--cost", "0.9", "--rounds", "9").out


BAD = {
    "no chance": (["--acceptance", "1.5"], "acceptance is 1.5"),
    "negative cost": (["--acceptance", "0.5", "--cost", "-1"], "costs cannot be negative"),
    "too deep": (["--acceptance", "0.5", "--depth", "1000"], "depth is 1000"),
    "no rounds": (["--acceptance", "0.5", "--rounds", "0"], "rounds is 0"),
    "no curve": (["--acceptance", "0.5", "--target-cost", "fast"], "WIDTH:COST"),
    "no file": (["--acceptance", "0.5", "--svg", "/nowhere/x.svg"], "/nowhere/x.svg"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name):
    words, message = BAD[name]
    assert message in outrider("simulate", *words).error
