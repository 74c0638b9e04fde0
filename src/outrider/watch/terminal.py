"""Plays a trace in the terminal: step by step with keys where there are any, else every round in turn."""

from collections.abc import Callable, Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outrider.traces.lines import Line
from outrider.traces.reader import RecordedRequest, RecordedRound, Session
from outrider.traces.shape import check_line
from outrider.traces.summary import seconds_until, sums, verdict
from outrider.watch.keys import Keys, can_read_keys
from outrider.watch.paint import (
    STEPS,
    caption,
    committed,
    figures,
    frames_of,
    last_lines,
    tree_lines,
    written,
)

HELP = "space play/pause  ←/→ step  shift+←/→ round  + - speed  home end  q leave"
STEP_SECONDS = {"draft": 1.1, "score": 0.9, "keep": 1.4, "end": 0.0}
TICK = 0.1  # seconds of a comparison's time that one place stands for


class _Reel:
    """A row of places that is played, stepped through and drawn."""

    def __init__(self, size: int, wait: Callable[[int], float], jump: Callable[[int, int], int]) -> None:
        self.size, self._wait, self._jump = size, wait, jump
        self.place, self.playing, self.speed = 0, True, 1.0

    def run(self, console: Console, draw: Callable[[int], RenderableType]) -> None:
        with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(draw(self.place), refresh=True)
                key = keys.read(self._wait(self.place) / self.speed if self.playing else None)
                if key == "q":
                    return
                self._act(key)

    def _act(self, key: str | None) -> None:
        if key is None:
            self.go(self.place + 1)
            self.playing = self.place < self.size - 1
        elif key == "space":
            self.playing = not self.playing
            if self.playing and self.place == self.size - 1:
                self.place = 0
        elif key in ("+", "-"):
            self.speed = min(64.0, max(0.125, self.speed * (2 if key == "+" else 0.5)))
        else:
            steps = {"right": self.place + 1, "left": self.place - 1, "home": 0, "end": self.size - 1}
            far = {"far right": 1, "far left": -1}
            if key in far:
                self._stop_at(self._jump(self.place, far[key]))
            elif key in steps:
                self._stop_at(steps[key])

    def _stop_at(self, place: int) -> None:
        self.playing = False
        self.go(place)

    def go(self, place: int) -> None:
        self.place = max(0, min(self.size - 1, place))


def play(request: RecordedRequest, console: Console) -> None:
    """Show one request, with keys if there is somebody to press them."""
    if not can_read_keys():
        _print_all(request, console)
        return
    frames = frames_of(request)
    places = [place for place, _ in frames]

    def jump(at: int, direction: int) -> int:
        wanted = max(0, places[at] + direction)
        return places.index(wanted) if wanted in places else len(frames) - 1

    reel = _Reel(len(frames), lambda at: STEP_SECONDS[frames[at][1]], jump)
    reel.run(console, lambda at: _screen(request, *frames[at], console, reel.speed))


def compare(one: RecordedRequest, other: RecordedRequest, console: Console) -> None:
    """Show two requests side by side at the pace at which they were recorded, and what may be said of them."""
    last = max(seconds_until(request, len(request.rounds)) for request in (one, other))
    if can_read_keys():
        reel = _Reel(int(last / TICK) + 2, lambda _: TICK, lambda at, direction: at + 10 * direction)
        reel.run(console, lambda at: _race((one, other), at * TICK, console, reel.speed))
    for request in (one, other):
        console.print(figures(request, len(request.rounds)), markup=False)
    console.print(verdict(one, other).words, markup=False)


def follow(lines: Iterable[Line], console: Console) -> None:
    """Print the rounds of a server as they come."""
    session: Session | None = None
    for line in lines:
        try:
            check_line(line)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if line["kind"] == "header":
            session = Session(line)
            console.print(f"watching {line['target']['name']}", style="bold", markup=False)
        elif session is not None:
            _tell(session, line, console)


def _tell(session: Session, line: Line, console: Console) -> None:
    session.add(line)
    if line["kind"] == "round":
        for row in line["rows"]:
            request = session.requests[row["request"]]
            console.print(Text(f"{request.id}: ", "dim").append_text(_brief(request.rounds[-1])))
            del request.rounds[:]
    elif line["kind"] in ("request", "end"):
        word = f"{line['prompt_tokens']} tokens to read" if line["kind"] == "request" else f"ended: {line['finish']}"
        console.print(f"{line['request']}: {word}", style="dim", markup=False)


def _brief(one: RecordedRound) -> Text:
    plan = one.row["plan"]
    drafted = f"{plan['drafter']} {one.num_drafted} drafted" if one.num_drafted else "no draft"
    shown = committed(one)
    shown.plain = shown.plain.replace("\n", "⏎")  # same length, so the looks stay where they are
    return Text(f"{drafted}, {one.delivered} written  ", "dim").append_text(shown)


def _screen(request: RecordedRequest, place: int, step: str, console: Console, speed: float) -> RenderableType:
    one = request.rounds[min(place, len(request.rounds) - 1)]
    name = "the end" if step == "end" else f"round {place + 1} of {len(request.rounds)}"
    head = Text(f"{name}   ", "bold")
    for known in STEPS:
        head.append(f" {known} ", "reverse" if known == step else "dim")
    head.append(f"   {speed:g}x", "dim")
    tree = tree_lines(one, "keep" if step == "end" else step)
    room = console.height - len(tree) - 10
    text = last_lines(written(request, place, step), console, console.width, room)
    seen = place + (step == "keep")
    about = Text(caption(request, place, step))
    return Group(head, Text(), *tree, Text(), about, Text(), text, Text(), Text(figures(request, seen), "dim"), _help())


def _race(pair: tuple[RecordedRequest, RecordedRequest], now: float, console: Console, speed: float) -> RenderableType:
    table = Table.grid(expand=True, padding=(0, 2))
    for _ in pair:
        table.add_column(ratio=1)
    cells: list[tuple[RenderableType, RenderableType, RenderableType]] = []
    for request in pair:
        count = sum(seconds_until(request, place + 1) <= now for place in range(len(request.rounds)))
        done = count == len(request.rounds)
        text = last_lines(written(request, count, "end"), console, console.width // 2 - 4, console.height - 9)
        name = "with drafts" if request.speculative else "plain"
        state = "done" if done else f"{sums(request.rounds[:count]).tokens} tokens"
        cells.append((Text(f"{name}: {state}", "bold"), text, Text(figures(request, count), "dim")))
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    return Group(Text(f"{now:.1f} s   {speed:g}x", "dim"), Text(), table, Text(), Text(verdict(*pair).words), _help())


def _help() -> Text:
    return Text(HELP, "dim")


def _print_all(request: RecordedRequest, console: Console) -> None:
    """Every round in turn, for pipes and for terminals without keys."""
    for place, one in enumerate(request.rounds):
        console.print(f"round {place + 1}", style="bold", markup=False)
        for line in tree_lines(one, "keep"):
            console.print(line)
        console.print(caption(request, place, "keep"), markup=False)
        console.print()
    console.print(written(request, len(request.rounds), "end"))
    console.print()
    console.print(figures(request, len(request.rounds)), markup=False)
