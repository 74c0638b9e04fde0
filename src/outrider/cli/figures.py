"""The line of figures that follows a text."""

from collections.abc import Sequence

from outrider.cli.play import Comparison, tokens_per_second
from outrider.engine.completion import Completion
from outrider.engine.trace import RoundTrace


def summary(completion: Completion) -> str:
    """`160 tokens in 62 rounds, 2.58 a round, 71% accepted (suffix 58, recycle 40), 24.1 tok/s`"""
    stats = completion.stats
    kept = f"{stats.acceptance:.0%} accepted" if stats.acceptance is not None else "nothing drafted"
    kept += shares(completion)
    return (
        f"{len(completion.token_ids)} tokens in {stats.rounds} rounds, {stats.tokens_per_round:.2f} a round, {kept}, "
        f"{tokens_per_second(completion):.1f} tok/s"
    )


def shares(completion: Completion) -> str:
    """` (suffix 58, recycle 40)`: whose the accepted tokens were, where there is more than one to name."""
    parts = sorted(completion.stats.accepted_by.items(), key=lambda part: -part[1])
    names = {name for name, _ in parts}
    if not parts or names == {completion.stats.method}:
        return ""
    return f" ({', '.join(f'{name} {count}' for name, count in parts)})"


def versus(comparison: Comparison) -> str:
    """`plain 15.3 tok/s, same tokens`; the ratio only beside equal outputs."""
    plain = f"plain {tokens_per_second(comparison.plain):.1f} tok/s"
    ratio = f" ({comparison.speed_up:.2f}x)" if comparison.speed_up is not None else ""
    return f"{plain}{ratio}, {_verdict(comparison)}"


def one_line(comparison: Comparison) -> str:
    """`128 tokens in 33 rounds, 3.88 each, 37% accepted; 45.5 tok/s, plain 33.2: equal`: fits in 80 columns."""
    stats = comparison.speculative.stats
    kept = f"{stats.acceptance:.0%} accepted" if stats.acceptance is not None else "nothing drafted"
    fast, plain = tokens_per_second(comparison.speculative), tokens_per_second(comparison.plain)
    return (
        f"{stats.delivered} tokens in {stats.rounds} rounds, {stats.tokens_per_round:.2f} each, {kept}; "
        f"{fast:.1f} tok/s, plain {plain:.1f}: {_verdict(comparison).removeprefix('tokens ')}"
    )


def _verdict(comparison: Comparison) -> str:
    if comparison.equal:
        return "tokens equal"
    place = comparison.first_difference
    what = "finish differs" if place is None else f"tokens DIFFER from number {place + 1} on"
    return what + _excuse(comparison)


def method(completion: Completion) -> str:
    """`lookup, identical (lossless), bitwise`; why plain, if it was."""
    stats = completion.stats
    why = f" ({stats.off_reason})" if stats.off_reason else ""
    loss = "lossless" if stats.lossless else "LOSSY"
    return f"{stats.method}{why}, rule {stats.rule} ({loss}), {stats.exact}"


def policy_lines(rounds: Sequence[RoundTrace]) -> list[str]:
    """Why each round drafted what it did: `round 3: kept 2 of 5; lookup offered 10, scored 5, ...`."""
    return [
        f"round {number}: kept {len(row.path) - 1} of {len(row.tokens) - 1}; {row.reason or 'no reason given'}"
        for number, one in enumerate(rounds, 1)
        for row in one.rows
    ]


def _excuse(comparison: Comparison) -> str:
    stats = comparison.speculative.stats
    if comparison.must_be_equal:
        return ": a defect"
    if not stats.lossless:
        return f": rule {stats.rule} is lossy"
    if stats.exact != "bitwise":
        return ": a near tie, or a defect; `outrider certify` tells"
    return f": under rule {stats.rule} only the law is the same when sampling"
