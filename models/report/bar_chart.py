"""Bar charts as SVG in the page itself, coloured by the page's CSS variables, and patches above a picture.

Bars with names and signs lie below each other; small ones without names stand, stacked or two side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from models.inference.box import Box
from models.report.line_chart import NUM_COLOURS
from models.report.pages import show

WIDTH, ROW, NAME, VALUE = 420, 22, 150, 64
"""Pixels of named bars: of the chart, of a row, of the names at the left, of the values at the right."""
MOST_CHARACTERS = 22
SMALL_WIDTH, SMALL_HEIGHT, GAP = 240, 56, 1
"""Pixels of small bars: of the chart, and between two bars."""
_CHART = Markup('<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{content}</svg>')
_BAR = Markup('<rect class="c{colour}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
_LINE = Markup('<line class="{kind}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}"><title>{whole}</title>{text}</text>')

MOST_SPOKEN = 3
"""Patches that a reader hears who cannot see the picture."""
DEEPEST = 0.75
"""How much of the picture the colour of the strongest patch covers."""
_MAP = Markup(
    '<svg class="tried map" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    '<image width="{width}" height="{height}" href="data:image/png;base64,{picture}"/>{patches}</svg>'
)
_PATCH = Markup(
    '<rect class="c{colour}" x="{box.across}" y="{box.down}" width="{box.width}" height="{box.height}"'
    ' fill-opacity="{depth}"><title>{change}</title></rect>'
)


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
        return round(NAME + (value - low) * across, 1)

    parts = [_LINE.format(kind="grid", x1=place(0.0), x2=place(0.0), y1=0, y2=height)]
    for number, bar in enumerate(bars):
        top = number * ROW
        start, end = sorted((place(0.0), place(bar.value)))
        parts.append(_bar(int(bar.value < 0), start, top + 5, end - start, 12))
        if bar.low is not None and bar.high is not None:
            middle = top + 11
            parts.append(_LINE.format(kind="whisker", x1=place(bar.low), x2=place(bar.high), y1=middle, y2=middle))
        name = bar.name if len(bar.name) <= MOST_CHARACTERS else f"{bar.name[: MOST_CHARACTERS - 1]}…"
        parts.append(_TEXT.format(x=NAME - 6, y=top + 15, anchor="end", whole=bar.name, text=name))
        value = show(bar.value)
        parts.append(_TEXT.format(x=WIDTH - 2, y=top + 15, anchor="end", whole=value, text=value))
    label = f"{title}: {'; '.join(f'{bar.name} {show(bar.value)}' for bar in bars)}"
    return _CHART.format(kind="chart", width=WIDTH, height=height, label=label, content=Markup().join(parts))


def stacked(groups: Sequence[Sequence[float]], label: str, colour: int = 0) -> Markup:
    """Return bars of cells, each stacked of its groups.

    Args:
        groups: Counts (group, cell), all of one length.
        label: What a reader hears who cannot see the chart.
        colour: That of the first group.
    """
    totals = [sum(cell) for cell in zip(*groups, strict=True)]
    highest, step = max(totals, default=0) or 1, SMALL_WIDTH / max(1, len(totals))
    bars = []
    for cell in range(len(totals)):
        foot = float(SMALL_HEIGHT)
        for group, counts in enumerate(groups):
            height = counts[cell] / highest * (SMALL_HEIGHT - 2)
            if height:
                foot -= height
                bars.append(_small_bar(colour + group, cell * step, foot, step, height))
    return _small_chart(bars, label)


def side_by_side(before: Sequence[float], after: Sequence[float], label: str) -> Markup:
    """Return two bars for each cell: before and after.

    Args:
        before: Shares (cell,).
        after: Shares of the same cells.
        label: What a reader hears who cannot see the chart.
    """
    highest, step = max([*before, *after], default=0) or 1, SMALL_WIDTH / max(1, len(before))
    bars = []
    for cell, pair in enumerate(zip(before, after, strict=True)):
        for place, share in enumerate(pair):
            height = share / highest * (SMALL_HEIGHT - 2)
            if height:
                start = cell * step + place * step / 2
                bars.append(_small_bar(place, start, SMALL_HEIGHT - height, step / 2, height))
    return _small_chart(bars, label)


def _small_bar(colour: int, start: float, top: float, width: float, height: float) -> Markup:
    return _bar(colour % NUM_COLOURS, start, top, max(width - GAP, width / 2), max(height, 0.5))


def _small_chart(bars: Sequence[Markup], label: str) -> Markup:
    foot = _LINE.format(kind="grid", x1=0, x2=SMALL_WIDTH, y1=SMALL_HEIGHT - 0.5, y2=SMALL_HEIGHT - 0.5)
    content = Markup().join([*bars, foot])
    return _CHART.format(kind="bars", width=SMALL_WIDTH, height=SMALL_HEIGHT, label=label, content=content)


def _bar(colour: int, left: float, top: float, width: float, height: float) -> Markup:
    ends = {"x": left, "y": top, "width": width, "height": height}
    return _BAR.format(colour=colour, **{name: round(value, 2) for name, value in ends.items()})


def patch_map(picture: str, patches: Sequence[tuple[Box, float]], title: str) -> Markup:
    """Return a picture with its patches: those that add are of the first colour, those that take away of the second.

    Args:
        picture: A PNG in base64.
        patches: What each adds, of which the lowest right one ends where the picture does.
        title: What a reader hears first who cannot see the picture.
    """
    width = max(box.across + box.width for box, _ in patches)
    height = max(box.down + box.height for box, _ in patches)
    deepest = max(abs(change) for _, change in patches) or 1.0
    drawn = [
        _PATCH.format(
            colour=int(change < 0),
            box=box,
            depth=round(DEEPEST * abs(change) / deepest, 3),
            change=show(change),
        )
        for box, change in patches
    ]
    strongest = sorted(patches, key=lambda pair: -abs(pair[1]))[:MOST_SPOKEN]
    spoken = (
        f"{show(change)} at {x} to {x + width} across, {y} to {y + height} down"
        for (x, y, width, height), change in strongest
    )
    label = f"{title}: {'; '.join(spoken)}"
    return _MAP.format(width=width, height=height, label=label, picture=picture, patches=Markup().join(drawn))
