"""Why rounds were drafted as they were: rounds of one kind on one line."""

from dataclasses import replace

from outrider.cli.figures import policy_lines
from outrider.engine.trace import RoundTrace
from outrider.types import PhaseSeconds
from test_cli_tree import row


def rounds(*reasons: str) -> list[RoundTrace]:
    return [RoundTrace(i, (replace(row(), reason=reason),), PhaseSeconds(), 6) for i, reason in enumerate(reasons)]


def test_rounds_of_one_kind_share_a_line_with_the_range_of_every_number() -> None:
    told = policy_lines(
        rounds("x offered 4, hoped 1.50", "no drafter", "x offered 10, hoped 1.25", "x offered 9, hoped 2")
    )
    assert [line.partition(":")[0] for line in told] == ["rounds 1, 3-4 (3)", "round 2"]
    assert told[0].endswith("; x offered 4-10, hoped 1.25-2")
    assert told[1].endswith("; no drafter")


def test_of_many_rounds_apart_the_first_are_named() -> None:
    told = policy_lines(rounds(*["a", ""] * 9))
    assert told[0].startswith("rounds 1, 3, 5, 7, 9, 11, ... (9): kept 18 of 45")
    assert told[1].endswith("no reason given")
