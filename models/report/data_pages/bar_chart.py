"""Small bar charts as SVG in the page itself, coloured by the page's CSS variables: stacked, or two side by side."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from models.report.line_chart import NUM_COLOURS

WIDTH, HEIGHT, GAP = 240, 56, 1
_CHART = Markup('<svg class="bars" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{content}</svg>')
_BAR = Markup('<rect class="c{colour}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
_FOOT = Markup('<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}"/>')


def stacked(groups: Sequence[Sequence[float]], label: str, colour: int = 0) -> Markup:
    """Return bars of cells, each stacked of its groups.

    Args:
        groups: Counts (group, cell), all of one length.
        label: What a reader hears who cannot see the chart.
        colour: That of the first group.
    """
    totals = [sum(cell) for cell in zip(*groups, strict=True)]
    highest, step = max(totals, default=0) or 1, WIDTH / max(1, len(totals))
    bars = []
    for cell in range(len(totals)):
        foot = float(HEIGHT)
        for group, counts in enumerate(groups):
            height = counts[cell] / highest * (HEIGHT - 2)
            if height:
                foot -= height
                bars.append(_bar(colour + group, cell * step, foot, step, height))
    return _chart(bars, label)


def side_by_side(before: Sequence[float], after: Sequence[float], label: str) -> Markup:
    """Return two bars for each cell: before and after.

    Args:
        before: Shares (cell,).
        after: Shares of the same cells.
        label: What a reader hears who cannot see the chart.
    """
    highest, step = max([*before, *after], default=0) or 1, WIDTH / max(1, len(before))
    bars = []
    for cell, pair in enumerate(zip(before, after, strict=True)):
        for place, share in enumerate(pair):
            height = share / highest * (HEIGHT - 2)
            if height:
                bars.append(_bar(place, cell * step + place * step / 2, HEIGHT - height, step / 2, height))
    return _chart(bars, label)


def _bar(colour: int, start: float, top: float, width: float, height: float) -> Markup:
    return _BAR.format(
        colour=colour % NUM_COLOURS,
        x=round(start, 2),
        y=round(top, 2),
        width=round(max(width - GAP, width / 2), 2),
        height=round(max(height, 0.5), 2),
    )


def _chart(bars: Sequence[Markup], label: str) -> Markup:
    foot = _FOOT.format(width=WIDTH, y=HEIGHT - 0.5)
    return _CHART.format(width=WIDTH, height=HEIGHT, label=label, content=Markup().join([*bars, foot]))
