"""A round as lines of a terminal: the draft tree, the text with its origins, and the figures so far."""

from collections.abc import Sequence

from rich.console import Console
from rich.style import Style
from rich.text import Text

from outrider.traces.reader import RecordedRequest, RecordedRound
from outrider.traces.summary import outcome, seconds_until, sums

HIDDEN = "▮"
LOOKS = {
    "root": Style(dim=True),
    "drafted": Style(color="magenta", italic=True),
    "kept": Style(color="green"),
    "struck": Style(color="red", strike=True),
    "recovered": Style(color="yellow", underline=True),
    "bonus": Style(color="cyan", bold=True),
    "plain": Style(),
    "accepted": Style(color="green"),
}
SIGNS = {"kept": "✓", "struck": "✕", "recovered": "↻", "bonus": "+", "plain": "="}
STEPS = ("draft", "score", "keep")
_VISIBLE = str.maketrans({" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def frames_of(request: RecordedRequest) -> list[tuple[int, str]]:
    """(round, step) in playing order: three steps of a round with a draft, one of any other, and the end."""
    found = [
        (place, step) for place, one in enumerate(request.rounds) for step in (STEPS if one.num_drafted else STEPS[-1:])
    ]
    return [*found, (len(request.rounds), "end")]


def caption(request: RecordedRequest, place: int, step: str) -> str:
    """One sentence about what a frame shows."""
    if step == "end":
        finish = f" It ended with {request.end['finish']!r}." if request.end else " The trace ends here."
        total = sums(request.rounds)
        return f"{total.tokens} tokens in {total.rounds} rounds.{finish}"
    one = request.rounds[place]
    plan = one.row["plan"]
    if step == "draft":
        return f"{plan['drafter']} drafts {one.num_drafted} (plan: depth {plan['depth']}; {plan['reason']})."
    if step == "score":
        return f"The target scores {one.num_drafted + 1} places in one pass, {1000 * one.seconds['score']:.0f} ms."
    return outcome(one)


def tree_lines(one: RecordedRound, step: str) -> list[Text]:
    """The tree: its main line (the first child of the first child ...) first, every branch on a line of its own."""
    lines: list[Text] = []
    _line(one, step, 0, Text(), lines)
    return lines


def written(request: RecordedRequest, place: int, step: str) -> Text:
    """The text so far, and behind it what is drafted or has just been kept."""
    text = Text((request.begin or {}).get("prompt") or "", LOOKS["root"])
    for one in request.rounds[:place]:
        text.append_text(committed(one))
    if step == "end":
        return text.append((request.end or {}).get("rest") or "")
    if step == "keep":
        return text.append_text(committed(request.rounds[place]))
    for node in _main_line(request.rounds[place], 0)[1:]:
        text.append(_text(request.rounds[place], node), LOOKS["drafted"])
    return text


def committed(one: RecordedRound) -> Text:
    """What a round delivered, in its origins' looks."""
    delivered = one.row["delivered"]
    texts = delivered["texts"] or [f"{HIDDEN} "] * delivered["count"]
    text = Text()
    for piece, origin in zip(texts, delivered["origins"], strict=True):
        text.append(piece, LOOKS[origin])
    return text


def figures(request: RecordedRequest, count: int) -> str:
    """The figures of the first `count` rounds in one line."""
    total, seconds = sums(request.rounds[:count]), seconds_until(request, count)
    accepted = f"{total.accepted / total.drafted:.0%} accepted" if total.drafted else "nothing drafted"
    speed = f"{total.tokens / seconds:.1f} tok/s" if seconds > 0 else ""
    each = f"{total.tokens / total.rounds:.2f} a round" if total.rounds else ""
    places = " ".join(f"{kept / total.rounds:.0%}" for kept in total.kept_at[:8])
    by_place = f"by place {places}" if places else ""
    phases = " ".join(f"{name} {value:.2f}s" for name, value in total.seconds.items() if value >= 0.005)
    parts = (f"{total.tokens} tokens", each, accepted, by_place, phases, speed)
    return "  ".join(part for part in parts if part)


def last_lines(text: Text, console: Console, width: int, height: int) -> Text:
    """The end of the text, as much as fits."""
    return Text("\n").join(text.wrap(console, max(8, width))[-max(1, height) :])


def _line(one: RecordedRound, step: str, node: int, lead: Text, lines: list[Text]) -> None:
    line, main = lead.copy(), _main_line(one, node)
    for place, member in enumerate(main):
        line.append(" ─ " if place else "", LOOKS["root"])
        line.append_text(_node(one, step, member))
    lines.append(line)
    for member in reversed(main):
        for child in _children(one, member)[1:]:
            _line(one, step, child, Text(f"  └ after {_visible(one, member)}: ", LOOKS["root"]), lines)
    path, following = one.row["path"], one.row["next"]
    if step == "keep" and path[-1] in main and following["origin"] != "accepted":
        own, look = _shown(following["text"]), following["origin"]
        where = f"└ after {_visible(one, path[-1])}: " if one.num_drafted else ""
        lines.append(Text(f"  {where}", LOOKS["root"]).append(f"{SIGNS[look]} {own}", LOOKS[look]))


def _node(one: RecordedRound, step: str, node: int) -> Text:
    look = _look(one, step, node)
    sign = f"{SIGNS[look]} " if look in SIGNS else ""
    chance = one.row["target"]["chance"][node]
    text = Text(f"{sign}{_visible(one, node)}", LOOKS[look])
    if step != "draft" and node and chance is not None:
        text.append(f" {chance:.0%}", "dim")
    return text


def _look(one: RecordedRound, step: str, node: int) -> str:
    if node == 0:
        return "root"
    if step != "keep":
        return "drafted"
    path, following = one.row["path"], one.row["next"]
    tokens = one.row["tree"]["tokens"] or []
    ends_here = following["origin"] == "accepted" and one.row["tree"]["parents"][node] == path[-1]
    return "kept" if node in path or (ends_here and tokens[node : node + 1] == [following["token"]]) else "struck"


def _main_line(one: RecordedRound, node: int) -> list[int]:
    line = [node]
    while children := _children(one, line[-1]):
        line.append(children[0])
    return line


def _children(one: RecordedRound, node: int) -> Sequence[int]:
    return [child for child, parent in enumerate(one.row["tree"]["parents"]) if parent == node < child]


def _text(one: RecordedRound, node: int) -> str:
    texts = one.row["tree"]["texts"]
    return f"{HIDDEN} " if texts is None else texts[node]


def _visible(one: RecordedRound, node: int) -> str:
    texts = one.row["tree"]["texts"]
    return _shown(None if texts is None else texts[node])


def _shown(text: str | None) -> str:
    return HIDDEN if text is None else text.translate(_VISIBLE) or "∅"
