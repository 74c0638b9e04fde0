"""A sweep's entries as a table: tokens per round, milliseconds of drafting per round, speed against plain by kind."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.bench.sweep import PLAIN, Entry


@dataclass(frozen=True)
class Line:
    """One drafter under one rule at one temperature. yields: tokens per round by kind of prompt.

    ratios: speed against plain, by kind; ratio: their geometric mean. Both are empty or None where a text differed from
    plain's: no speed is told of another text.
    """

    drafter: str
    rule: str
    temperature: float
    tokens_per_round: float
    acceptance: float | None
    draft_ms: float
    tokens_per_second: float
    yields: dict[str, float]
    ratios: dict[str, float]
    num_equal: int
    num_compared: int

    @property
    def ratio(self) -> float | None:
        if not self.ratios:
            return None
        return math.exp(sum(math.log(ratio) for ratio in self.ratios.values()) / len(self.ratios))


def lines(entries: Sequence[Entry]) -> list[Line]:
    """In the order of temperature, then of first appearance."""
    groups = dict.fromkeys((e.temperature, e.drafter, e.rule) for e in entries)
    return [
        _line([e for e in entries if (e.temperature, e.drafter, e.rule) == group], entries)
        for group in sorted(groups, key=lambda group: group[0])
    ]


def markdown(found: Sequence[Line]) -> str:
    """The table as docs take it, and one of tokens per round by kind."""
    return f"{_speeds(found)}\n\nTokens per round by kind of prompt:\n\n{_yields(found)}"


def _yields(found: Sequence[Line]) -> str:
    kinds = list(dict.fromkeys(kind for line in found for kind in line.yields))
    rows = [
        [*_cells(line, [])[:3], *(f"{line.yields[kind]:.2f}" if kind in line.yields else "" for kind in kinds)]
        for line in found
        if line.drafter != PLAIN
    ]
    return _table([["temperature", "drafter", "rule", *kinds], *rows])


def _speeds(found: Sequence[Line]) -> str:
    kinds = list(dict.fromkeys(kind for line in found for kind in line.ratios))
    head = [
        "temperature",
        "drafter",
        "rule",
        "tokens/round",
        "kept",
        "draft ms/round",
        "tok/s",
        "x plain",
        *kinds,
        "equal",
    ]
    return _table([head, *(_cells(line, kinds) for line in found)])


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *rest])


def _line(own: Sequence[Entry], entries: Sequence[Entry]) -> Line:
    rounds = sum(e.rounds for e in own)
    proposed = sum(e.proposed for e in own)
    compared = [e.equal for e in own if e.equal is not None]
    return Line(
        own[0].drafter,
        own[0].rule,
        own[0].temperature,
        _yield(own),
        sum(e.accepted for e in own) / proposed if proposed else None,
        1000 * sum(e.draft_seconds for e in own) / rounds,
        sum(e.num_tokens for e in own) / sum(e.seconds for e in own),
        {kind: _yield([e for e in own if e.kind == kind]) for kind in dict.fromkeys(e.kind for e in own)},
        _ratios(own, entries) if all(compared) else {},
        sum(compared),
        len(compared),
    )


def _ratios(own: Sequence[Entry], entries: Sequence[Entry]) -> dict[str, float]:
    """Seconds per token of plain over those of this line, both over the same prompts of a kind."""
    ratios: dict[str, float] = {}
    for kind in dict.fromkeys(e.kind for e in own):
        mine = [e for e in own if e.kind == kind]
        prompts = {e.prompt_id for e in mine}
        plain = [
            e for e in entries if e.drafter == PLAIN and e.temperature == own[0].temperature and e.prompt_id in prompts
        ]
        if plain:
            ratios[kind] = _seconds_per_token(plain) / _seconds_per_token(mine)
    return ratios


def _yield(entries: Sequence[Entry]) -> float:
    return sum(e.num_tokens for e in entries) / sum(e.rounds for e in entries)


def _seconds_per_token(entries: Iterable[Entry]) -> float:
    found = list(entries)
    return sum(e.seconds for e in found) / sum(e.num_tokens for e in found)


def _cells(line: Line, kinds: Sequence[str]) -> list[str]:
    return [
        f"{line.temperature:g}",
        line.drafter,
        "" if line.drafter == PLAIN else line.rule if line.temperature > 0 else "all",
        f"{line.tokens_per_round:.2f}",
        "" if line.acceptance is None else f"{line.acceptance:.0%}",
        f"{line.draft_ms:.2f}",
        f"{line.tokens_per_second:.1f}",
        "DIFFERS" if line.ratio is None else f"{line.ratio:.2f}",
        *(f"{line.ratios[kind]:.2f}" if kind in line.ratios else "" for kind in kinds),
        f"{line.num_equal}/{line.num_compared}" if line.num_compared else "law",
    ]
