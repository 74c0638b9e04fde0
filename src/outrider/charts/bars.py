"""Bars as inline SVG: side by side in groups, or lying and stacked to show what a whole is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.charts.svg import Frame, colour, document, legend, level_line, right_margin, text, y_axis

LETTER = 7.5  # width of a letter, at most


@dataclass(frozen=True)
class Series:
    """One colour: a value for every group; None where there is none."""

    name: str
    values: Sequence[float | None]


def grouped_bars(
    groups: Sequence[str], series: Sequence[Series], *, label: str, y_label: str, level: float | None = None
) -> str:
    """An <svg> element: for every group one bar of each series, its value written on it. level: the break-even."""
    known = [value for one in series for value in one.values if value is not None]
    if not known:
        return ""
    top = max([*known, level or 0.0])
    frame = Frame((0.0, float(len(groups))), (0.0, 1.12 * top or 1.0), bottom=46.0, right=right_margin(level))
    parts = y_axis(frame, y_label)
    width = 0.8 / len(series)
    for index, one in enumerate(series):
        for group, value in enumerate(one.values):
            if value is not None:
                parts += _standing(frame, group + 0.1 + index * width, width * 0.92, value, colour(index))
    y = frame.height - frame.bottom + 16
    parts += [text(frame.x(group + 0.5), y, name) for group, name in enumerate(groups)]
    if level is not None:
        parts += level_line(frame, level, "break-even")
    return document(frame, [*parts, *legend(frame, [one.name for one in series])], label)


def stacked_bars(bars: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], *, label: str, unit: str) -> str:
    """An <svg> element: one lying bar per entry of `bars`, made of a piece for every name; the sum stands behind it."""
    if not bars:
        return ""
    longest = max(sum(pieces) for _, pieces in bars) or 1.0
    left = 16.0 + LETTER * max(len(name) for name, _ in bars)
    frame = Frame((0.0, 1.18 * longest), (0.0, 1.0), height=34.0 * len(bars) + 40, left=left)
    parts: list[str] = []
    for place, (name, pieces) in enumerate(bars):
        y = 10.0 + 34 * place
        parts.append(text(frame.left - 8, y + 16, name, anchor="end"))
        done = 0.0
        for index, piece in enumerate(pieces):
            wide = frame.x(done + piece) - frame.x(done)
            parts.append(
                f"<rect x='{frame.x(done):.1f}' y='{y:.1f}' width='{wide:.1f}' height='22' fill='{colour(index)}'/>"
            )
            done += piece
        parts.append(text(frame.x(done) + 6, y + 16, f"{done:.3g} {unit}", anchor="start"))
    return document(frame, [*parts, *legend(frame, names)], label)


def _standing(frame: Frame, start: float, width: float, value: float, fill: str) -> list[str]:
    x, wide, y = frame.x(start), frame.x(start + width) - frame.x(start), frame.y(value)
    high = frame.height - frame.bottom - y
    bar = f"<rect x='{x:.1f}' y='{y:.1f}' width='{wide:.1f}' height='{high:.1f}' fill='{fill}'/>"
    return [bar, text(x + wide / 2, y - 4, f"{value:.2f}", extra="font-size='10'")] if wide > 20 else [bar]
