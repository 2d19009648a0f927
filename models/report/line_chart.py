"""Line charts as SVG in the page itself, coloured by the page's CSS variables: dark mode and print need no more.

matplotlib's pictures stand in reports; a page that changes every second needs a chart that costs a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from models.report.pages import show

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 24
MOST_POINTS = 300
"""More points than a line has pixels; longer curves are thinned out."""
NUM_COLOURS = 8
_CHART = Markup('<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{content}</svg>')
_GRID = Markup('<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
_SPAN = Markup('<line class="band c{colour}" x1="{x}" x2="{x}" y1="{low}" y2="{high}"/>')
_MARK = Markup('<circle class="mark {colour}" cx="{x}" cy="{y}" r="5"/>')
_LINE = Markup('<g class="c{colour}"><polyline points="{path}"/><circle cx="{x}" cy="{y}" r="3"/></g>')


class Mark(NamedTuple):
    """A dot on a line in a colour that says what it is: green, amber or red."""

    position: float
    value: float
    colour: str


class Line(NamedTuple):
    """A line of a chart: its name, its points (x, y) sorted by x, intervals (x, low, high) and dots of some."""

    name: str
    points: Sequence[tuple[float, float]]
    spans: Sequence[tuple[float, float, float]] = ()
    marks: Sequence[Mark] = ()

    @property
    def last(self) -> float:
        """The last value."""
        return self.points[-1][1]


class Chart(NamedTuple):
    """A chart and its legend."""

    title: str
    image: Markup
    lines: Sequence[Line]


def lines_of(curves: Mapping[str, Mapping[int, float]], names: Sequence[str]) -> list[Line]:
    """Return curves as lines, in the order of the names."""
    return [Line(name, sorted(curves[name].items())) for name in names]


def line_chart(lines: Sequence[Line], title: str, x_label: str) -> Markup:
    """Return a chart as an `svg` element; a reader who cannot see it hears the last value of each line.

    Args:
        lines: At least one line with a point; names stand in a legend of the page, coloured by `c0`, `c1`, ...
        title: The chart's name.
        x_label: What the horizontal axis counts.
    """
    points = [point for line in lines for point in line.points]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    heights = [y for _, y in points] + [end for line in lines for span in line.spans for end in span[1:]]
    ticks = _ticks(min(heights), max(heights))
    across = (WIDTH - LEFT - RIGHT) / ((x_high - x_low) or 1)
    down = (HEIGHT - TOP - BOTTOM) / ((ticks[-1] - ticks[0]) or 1)

    def place(position: float, value: float) -> tuple[float, float]:
        return LEFT + (position - x_low) * across, HEIGHT - BOTTOM - (value - ticks[0]) * down

    parts = []
    for tick in ticks:
        level = round(place(x_low, tick)[1], 1)
        parts.append(_GRID.format(left=LEFT, right=WIDTH - RIGHT, y=level))
        parts.append(_TEXT.format(x=LEFT - 6, y=level + 4, anchor="end", text=show(tick)))
    bottom = HEIGHT - 8
    parts.append(_TEXT.format(x=LEFT, y=bottom, anchor="start", text=f"{x_low:g}"))
    parts.append(_TEXT.format(x=(LEFT + WIDTH) / 2, y=bottom, anchor="middle", text=x_label))
    parts.append(_TEXT.format(x=WIDTH - RIGHT, y=bottom, anchor="end", text=f"{x_high:g}" if x_high > x_low else ""))
    for number, line in enumerate(lines):
        placed = [place(*point) for point in _thinned(line.points)]
        path, colour = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed), number % NUM_COLOURS
        for position, low, high in line.spans:
            (middle, foot), (_, top) = place(position, low), place(position, high)
            parts.append(_SPAN.format(colour=colour, x=round(middle, 1), low=round(foot, 1), high=round(top, 1)))
        parts.append(_LINE.format(colour=colour, path=path, x=round(placed[-1][0], 1), y=round(placed[-1][1], 1)))
        for mark in line.marks:
            across_x, down_y = place(mark.position, mark.value)
            parts.append(_MARK.format(colour=mark.colour, x=round(across_x, 1), y=round(down_y, 1)))
    values = "; ".join(f"{line.name} {show(line.last)}" for line in lines)
    label = f"{title} up to {x_label} {x_high:g}: {values}"
    return _CHART.format(width=WIDTH, height=HEIGHT, label=label, content=Markup().join(parts))


def _ticks(low: float, high: float) -> list[float]:
    """Return three to seven round numbers that span the values."""
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-9):
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MOST_POINTS` points, the first and the last among them."""
    stride = math.ceil(len(points) / MOST_POINTS)
    return [*points[: -1 if points else None : stride], *points[-1:]]
