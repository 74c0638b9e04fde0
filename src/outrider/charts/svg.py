"""The parts that charts are drawn of: escaped text, lines, axes with round ticks. Units are SVG pixels.

Colours are CSS variables with a fallback, so that a page can restyle a chart for light and dark, and a file on its own
still shows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#2563a8", "#c2571a", "#2f8554", "#8a4fa3", "#a3263c", "#5b6b7a", "#b08a1e", "#2a8f96")
INK, FAINT, ALERT = "var(--ink, #1c2530)", "var(--faint, #d5dbe1)", "var(--alert, #a3263c)"
LEVEL_ROOM = 76.0  # to the right of the plotting area, for the name of a level
FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, sans-serif'"


@dataclass(frozen=True)
class Frame:
    """Where the data lie in the drawing: data ranges, and margins in pixels around the plotting area."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = 640.0
    height: float = 300.0
    left: float = 52.0
    right: float = 14.0
    top: float = 12.0
    bottom: float = 44.0

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1.0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return (
            self.height - self.bottom - (value - low) / ((high - low) or 1.0) * (self.height - self.top - self.bottom)
        )


def colour(index: int) -> str:
    """The colour of the index-th series; they repeat after eight."""
    return COLOURS[index % len(COLOURS)]


def document(frame: Frame, parts: Sequence[str], label: str) -> str:
    """A whole <svg> element; label is what a screen reader says."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {frame.width:g} {frame.height:g}' role='img' "
        f"aria-label='{escape(label, quote=True)}' {FONT} font-size='12'>{''.join(parts)}</svg>"
    )


def text(x: float, y: float, words: str, *, anchor: str = "middle", fill: str = INK, extra: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{fill}' {extra}>{escape(words)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT, extra: str = "") -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{stroke}' {extra}/>"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) within the range."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def right_margin(level: float | None) -> float:
    """Of a chart with a line at this level, if there is one."""
    return Frame.right if level is None else LEVEL_ROOM


def level_line(frame: Frame, value: float, name: str) -> list[str]:
    """A line across at a value that matters, its name beside the plotting area."""
    y, end = frame.y(value), frame.width - frame.right
    return [
        line(frame.left, y, end, y, ALERT, "stroke-dasharray='5 4'"),
        text(end + 5, y + 4, name, anchor="start", fill=ALERT),
    ]


def y_axis(frame: Frame, label: str) -> list[str]:
    """Faint lines across at round values, their numbers, and the axis's name above."""
    parts: list[str] = []
    for value in ticks(*frame.y_range):
        y = frame.y(value)
        parts.append(line(frame.left, y, frame.width - frame.right, y))
        parts.append(text(frame.left - 6, y + 4, f"{value:g}", anchor="end"))
    turned = f"transform='rotate(-90 14 {frame.height / 2 - 16:.1f})'"
    return [*parts, text(14, frame.height / 2 - 16, label, extra=turned)]


def legend(frame: Frame, names: Sequence[str]) -> list[str]:
    """Colour and name of every series, below the drawing, in one line."""
    parts: list[str] = []
    x, y = frame.left, frame.height - 6
    for index, name in enumerate(names):
        parts.append(f"<rect x='{x:.1f}' y='{y - 9:.1f}' width='10' height='10' rx='2' fill='{colour(index)}'/>")
        parts.append(text(x + 14, y, name, anchor="start"))
        x += 14 + 6.6 * len(name) + 18
    return parts
