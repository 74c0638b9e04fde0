"""One round as a tree in the terminal: what was drafted, what was kept, what the target wrote instead.

Kept tokens are bold green with a tick, rejected ones struck out with a cross, and those that were never judged (below
a rejected one, or beside a kept one) dim with a dot; the signs alone tell them apart where there is no colour.
"""

from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from outrider.engine.trace import RoundTrace, RowTrace

LOOKS = {"kept": ("✓", "bold green"), "rejected": ("✗", "red strike"), "unjudged": ("·", "dim")}
Decode = Callable[[Sequence[int]], str]


def most_instructive(rounds: Sequence[RoundTrace]) -> RoundTrace | None:
    """The round that shows most: something kept and something rejected, then branches, then kept tokens; the first
    of equals. None if nothing was ever drafted."""
    drafted = [one for one in rounds if len(one.rows[0].tokens) > 1]
    return max(drafted, key=lambda one: _worth(one.rows[0]), default=None)


def show_round(trace: RoundTrace, num_rounds: int, decode: Decode, console: Console) -> None:
    """Print it. decode: token ids to text."""
    console.print(round_tree(trace, num_rounds, decode))


def round_tree(trace: RoundTrace, num_rounds: int, decode: Decode) -> RenderableType:
    """The round's first row as a tree, between a line that sums it up and one that says what was written next."""
    row = trace.rows[0]
    seconds = trace.seconds
    title = (
        f"round {trace.index + 1} of {num_rounds}: {len(row.tokens) - 1} drafted by {row.drafter}, "
        f"{sum(origin == 'accepted' for origin in row.origins)} kept, {len(row.delivered)} tokens written; "
        f"draft {1000 * seconds.draft:.1f} ms, score {1000 * seconds.score:.1f} ms"
    )
    places = [Tree(Text(f"{_quoted(decode, row.tokens[0])} (written before)"), guide_style="dim")]
    for node in range(1, len(row.tokens)):
        places.append(places[row.parents[node]].add(_label(row, node, decode)))
    return Group(Text(title, style="bold"), places[0], _last_line(row, decode))


def states(row: RowTrace) -> tuple[str, ...]:
    """kept, rejected or unjudged, for every node; a node is judged if its parent was kept and no sibling was."""
    kept = set(row.path) | _cut_node(row)
    parents_with_kept = {row.parents[node] for node in kept}

    def state(node: int) -> str:
        if node in kept:
            return "kept"
        parent = row.parents[node]
        return "rejected" if parent in kept and parent not in parents_with_kept else "unjudged"

    return tuple(state(node) for node in range(len(row.tokens)))


def _cut_node(row: RowTrace) -> set[int]:
    """A block that is cut ends in a drafted token which is kept, though the cache does not hold it yet."""
    if not row.origins or row.origins[-1] != "accepted":
        return set()
    last = row.path[-1]
    found = (n for n, parent in enumerate(row.parents) if parent == last and row.tokens[n] == row.next_token)
    return set(list(found)[:1])


def _worth(row: RowTrace) -> tuple[bool, bool, int]:
    seen = states(row)
    return "rejected" in seen and "kept" in seen[1:], len(set(row.parents)) < len(row.parents), seen.count("kept")


def _label(row: RowTrace, node: int, decode: Decode) -> Text:
    sign, style = LOOKS[states(row)[node]]
    label = Text(f"{sign} ", style=style.replace(" strike", ""))
    label.append(_quoted(decode, row.tokens[node]), style)
    figures = [f"target {row.target_chance[node]:.0%}"]
    if row.confidence is not None:
        figures.insert(0, f"draft {row.confidence[node]:.0%}")
    if row.sources and row.sources[node]:
        figures.insert(0, row.sources[node])
    return label.append(f"  {', '.join(figures)}", "dim")


def _last_line(row: RowTrace, decode: Decode) -> Text:
    """What followed the kept tokens, and why."""
    if row.origins[-1] == "accepted":
        return Text("the text ended with a drafted token", style="dim")
    why = (
        "nothing was rejected"
        if row.origins[-1] in ("bonus", "plain")
        else "the target's own, in place of what was rejected"
    )
    return Text.assemble("then ", (_quoted(decode, row.delivered[-1]), "bold"), (f"  {why}", "dim"))


def _quoted(decode: Decode, token: int) -> str:
    """A token's text so that blanks and line breaks can be seen."""
    return repr(decode([token]))
