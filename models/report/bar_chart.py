"""Horizontal bars with names and signs as SVG in the page itself, coloured by the page's CSS variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from models.report.pages import show

WIDTH, ROW, NAME, VALUE = 420, 22, 150, 64
"""Pixels: of the chart, of a row, of the names at the left, of the values at the right."""
MOST_CHARACTERS = 22
_CHART = Markup('<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{content}</svg>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}"><title>{whole}</title>{text}</text>')
_BAR = Markup('<rect class="c{colour}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="12"/>')
_SPAN = Markup('<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
_ZERO = Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')


class Bar(NamedTuple):
    """A bar: its name, its value, and the ends of its interval; both ends are the value where there is none."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def bar_chart(bars: Sequence[Bar], title: str) -> Markup:
    """Return bars from zero, one below the other; those below zero have another colour.

    Args:
        bars: At least one.
        title: The chart's name; a reader who cannot see it hears each value.
    """
    ends = [0.0] + [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
    low, height = min(ends), ROW * len(bars)
    across = (WIDTH - NAME - VALUE) / ((max(ends) - low) or 1.0)

    def place(value: float) -> float:
        return NAME + (value - low) * across

    parts = [_ZERO.format(x=place(0.0), height=height)]
    for number, bar in enumerate(bars):
        top = number * ROW
        start, end = sorted((place(0.0), place(bar.value)))
        parts.append(_BAR.format(colour=int(bar.value < 0), x=start, y=top + 5, width=end - start))
        if bar.low is not None and bar.high is not None:
            parts.append(_SPAN.format(low=place(bar.low), high=place(bar.high), y=top + 11))
        name = bar.name if len(bar.name) <= MOST_CHARACTERS else f"{bar.name[: MOST_CHARACTERS - 1]}…"
        parts.append(_TEXT.format(x=NAME - 6, y=top + 15, anchor="end", whole=bar.name, text=name))
        value = show(bar.value)
        parts.append(_TEXT.format(x=WIDTH - 2, y=top + 15, anchor="end", whole=value, text=value))
    label = f"{title}: {'; '.join(f'{bar.name} {show(bar.value)}' for bar in bars)}"
    return _CHART.format(width=WIDTH, height=height, label=label, content=Markup().join(parts))
