"""A sweep's entries as a table: tokens per round, milliseconds of drafting per round, speed against plain by kind."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from outrider.bench.sweep import PLAIN, PLAINS, Entry

NAMES = ("temperature", "drafter", "rule")
RATIOS, YIELDS = "Speed against plain by kind of prompt", "Tokens per round by kind of prompt"

Rows = list[list[str]]


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
    return f"{_markdown(_speeds(found, _kinds(found)))}\n\n{YIELDS}:\n\n{_markdown(_yields(found))}"


def tables(found: Sequence[Line]) -> list[Table]:
    """The same as tables for a terminal, where the ratios by kind of prompt are one of their own."""
    return [_rich(_speeds(found, [])), _rich(_ratios_by_kind(found), RATIOS), _rich(_yields(found), YIELDS)]


def _markdown(rows: Rows) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *rest])


def _rich(rows: Rows, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if 0 < number < len(NAMES) else "right", overflow="fold")
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _kinds(found: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(kind for line in found for kind in line.yields))


def _speeds(found: Sequence[Line], kinds: Sequence[str]) -> Rows:
    head = [*NAMES, "tokens/round", "kept", "draft ms/round", "tok/s", "x plain", *kinds, "equal"]
    return [head, *(_cells(line, kinds) for line in found)]


def _ratios_by_kind(found: Sequence[Line]) -> Rows:
    return _by_kind(found, lambda line: line.ratios)


def _yields(found: Sequence[Line]) -> Rows:
    return _by_kind([line for line in found if line.drafter not in PLAINS], lambda line: line.yields)


def _by_kind(found: Sequence[Line], values: Callable[[Line], Mapping[str, float]]) -> Rows:
    kinds = _kinds(found)
    cells = [[f"{values(line)[kind]:.2f}" if kind in values(line) else "" for kind in kinds] for line in found]
    return [[*NAMES, *kinds], *([*_names(line), *row] for line, row in zip(found, cells, strict=True))]


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


def _names(line: Line) -> list[str]:
    rule = "" if line.drafter in PLAINS else line.rule if line.temperature > 0 else "all"
    return [f"{line.temperature:g}", line.drafter, rule]


def _cells(line: Line, kinds: Sequence[str]) -> list[str]:
    return [
        *_names(line),
        f"{line.tokens_per_round:.2f}",
        "" if line.acceptance is None else f"{line.acceptance:.0%}",
        f"{line.draft_ms:.2f}",
        f"{line.tokens_per_second:.1f}",
        "DIFFERS" if line.ratio is None else f"{line.ratio:.2f}",
        *(f"{line.ratios[kind]:.2f}" if kind in line.ratios else "" for kind in kinds),
        f"{line.num_equal}/{line.num_compared}" if line.num_compared else "law",
    ]
