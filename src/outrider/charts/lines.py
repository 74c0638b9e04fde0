"""A line chart as inline SVG: one line per series, and if asked a level that matters (the break-even)."""

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.charts.svg import Frame, colour, document, legend, level_line, right_margin, text, ticks, y_axis


@dataclass(frozen=True)
class Line:
    """A series: points in the order in which they are joined."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False  # drawn in the colour of the line before it, without an entry in the legend


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    y_label: str,
    level: float | None = None,
    level_name: str = "break-even",
    x_names: Sequence[str] | None = None,
) -> str:
    """An <svg> element. level: a horizontal line with its name. x_names: shown at x = 0, 1, ... instead of numbers."""
    points = [point for one in lines for point in one.points]
    if not points:
        return ""
    values = [y for _, y in points] + ([level] if level is not None else [])
    xs = [x for x, _ in points]
    frame = Frame((min(xs), max(xs)), (0.0, 1.08 * max(values) or 1.0), bottom=62.0, right=right_margin(level))
    parts = [*y_axis(frame, y_label), *_x_axis(frame, x_label, x_names)]
    if level is not None:
        parts += level_line(frame, level, level_name)
    solid = [one for one in lines if not one.dashed]
    for place, one in enumerate(lines):
        index = sum(not other.dashed for other in lines[: place + 1]) - 1
        parts.append(_path(frame, one, colour(index)))
    return document(frame, [*parts, *legend(frame, [one.name for one in solid])], label)


def _path(frame: Frame, one: Line, stroke: str) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in one.points]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{stroke}'/>" for x, y in places)
    if one.dashed:
        return f"<polyline points='{way}' fill='none' stroke='{stroke}' stroke-width='1.5' stroke-dasharray='6 4'/>"
    return f"<polyline points='{way}' fill='none' stroke='{stroke}' stroke-width='2'/>{dots}"


def _x_axis(frame: Frame, label: str, names: Sequence[str] | None) -> list[str]:
    low, high = frame.x_range
    marks = [float(i) for i in range(len(names))] if names else [t for t in ticks(low, high, 8) if t == int(t)]
    y = frame.height - frame.bottom + 16
    parts = [text(frame.x(mark), y, names[int(mark)] if names else f"{mark:g}") for mark in marks]
    return [*parts, text((frame.left + frame.width - frame.right) / 2, y + 16, label)]
