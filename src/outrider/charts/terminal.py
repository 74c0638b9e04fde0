"""Bars of characters, for terminals and logs: one line a value, and a mark where it breaks even."""

from collections.abc import Sequence

EIGHTHS = " ▏▎▍▌▋▊▉"
WIDTH = 40


def bar_lines(
    rows: Sequence[tuple[str, float]], *, level: float | None = None, unit: str = "", width: int = WIDTH
) -> list[str]:
    """`  4  ██████████▌      2.80x`: bars to scale; `│` marks the level, where the bar does not hide it."""
    if not rows:
        return []
    top = max([value for _, value in rows] + [level or 0.0]) or 1.0
    names = max(len(name) for name, _ in rows)
    place = None if level is None else min(width - 1, round(level / top * width))
    return [f"{name:>{names}}  {_bar(value / top * width, width, place)}  {value:.2f}{unit}" for name, value in rows]


def _bar(length: float, width: int, place: int | None) -> str:
    whole = int(length)
    bar = "█" * whole + (EIGHTHS[int((length - whole) * 8)] if whole < width else "")
    cells = list(bar.ljust(width))
    if place is not None:
        cells[place] = "│" if cells[place] == " " else "┃"
    return "".join(cells)
