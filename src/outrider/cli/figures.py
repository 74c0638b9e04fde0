"""The line of figures that follows a text."""

import re
from collections.abc import Sequence

from outrider.cli.play import Comparison, tokens_per_second
from outrider.engine.completion import Completion
from outrider.engine.trace import RoundTrace, RowTrace

NUMBER = re.compile(r"\d+(?:\.\d+)?")
FEW_RUNS = 6  # of rounds, that are named


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
    """Why rounds drafted what they did, those of one kind together, the commonest kind first.

    `rounds 3, 5-9 (6): kept 12 of 30; lookup offered 4-10, scored 3-5, ...`: numbers from the least to the greatest.
    """
    kinds: dict[str, list[tuple[int, RowTrace]]] = {}
    for number, one in enumerate(rounds, 1):
        for row in one.rows:
            kinds.setdefault(NUMBER.sub("#", row.reason), []).append((number, row))
    return [_kind_line(members) for members in sorted(kinds.values(), key=lambda members: -len(members))]


def _kind_line(members: Sequence[tuple[int, RowTrace]]) -> str:
    rows = [row for _, row in members]
    kept, drafted = sum(len(row.path) - 1 for row in rows), sum(len(row.tokens) - 1 for row in rows)
    numbers = [number for number, _ in members]
    where = f"round {numbers[0]}" if len(numbers) == 1 else f"rounds {_runs(numbers)} ({len(numbers)})"
    return f"{where}: kept {kept} of {drafted}; {_common([row.reason for row in rows]) or 'no reason given'}"


def _runs(numbers: Sequence[int]) -> str:
    """`1, 3-5` for 1, 3, 4, 5; of many the first few."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    shown = ["-".join(map(str, run)) for run in runs[:FEW_RUNS]]
    return ", ".join([*shown, *["..."] * (len(runs) > FEW_RUNS)])


def _common(reasons: Sequence[str]) -> str:
    """Sentences that differ in their numbers alone as one: with the range of each number."""
    columns = zip(*(NUMBER.findall(reason) for reason in reasons), strict=True)
    ranges = iter([(min(column, key=float), max(column, key=float)) for column in columns])

    def shown(_: re.Match[str]) -> str:
        low, high = next(ranges)
        return low if low == high else f"{low}-{high}"

    return NUMBER.sub(shown, reasons[0])


def _excuse(comparison: Comparison) -> str:
    stats = comparison.speculative.stats
    if comparison.must_be_equal:
        return ": a defect"
    if not stats.lossless:
        return f": rule {stats.rule} is lossy"
    if stats.exact != "bitwise":
        return ": a near tie, or a defect; `outrider certify` tells"
    return f": under rule {stats.rule} only the law is the same when sampling"
