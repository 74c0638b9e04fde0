"""The demo with real weights: the text, one line of figures, and the same tokens without speculation."""

import re

import pytest

from helpers_cli import outrider
from helpers_speed import quick


@pytest.mark.real
def test_the_demo_ends_in_one_line_of_figures_beside_equal_tokens(models):
    models("smollm2-135m")
    with quick():
        seen = outrider("demo", "--tokens", "16")
    assert (seen.code, seen.err) == (0, "")
    assert "accepted (kept)  ⟦recovered⟧ (rejected)  «bonus» (all kept)  ⟨plain⟩ (no draft)" in seen.out
    line = seen.out.splitlines()[-1]
    wanted = r"16 tokens in (\d+) rounds, ([\d.]+) each, (\d+)% accepted; [\d.]+ tok/s, plain [\d.]+: equal"
    figures = re.fullmatch(wanted, line)
    assert figures, line
    assert 1 < 16 / int(figures[1]) == pytest.approx(float(figures[2]), abs=0.01)
    assert int(figures[3]) > 0
