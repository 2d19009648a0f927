"""The style of every figure: one palette, one size, and one function that renders to bytes; pyplot is never used."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from models.judge.verdict import Estimate

INK, MUTED, GRID = "#1f2933", "#5f6b76", "#e3e7eb"
# Okabe and Ito's palette, which colour-blind people can distinguish; without its yellow, too pale on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7A5195", "#444444")
DASHES = ("-", "--", ":", "-.")
MODEL_LOOKS = {
    "challenger": {"color": "#0072B2", "linestyle": "-"},
    "champion": {"color": "#D55E00", "linestyle": "--"},
    "baseline": {"color": "#767676", "linestyle": ":"},
}
SEQUENTIAL = "cividis"
WIDTH_IN = 6.6
"""At 700 pixels on screen the 9.5 point text is 14 pixels high."""

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "image.cmap": SEQUENTIAL,
    "svg.fonttype": "none",  # text stays text: small files, and a reader can search it
    "svg.hashsalt": "loopline",  # the same picture gives the same bytes
    "figure.facecolor": "white",
    "text.parse_math": False,  # a user's `$` is a dollar
}
# matplotlib's settings belong to the process: two threads must not draw at once.
_DRAWING = threading.Lock()


def draw(paint: Callable[[Any], None], height_in: float = 3.2) -> bytes:
    """Return an SVG figure: `paint` gets an empty `matplotlib.figure.Figure` in the common style and fills it."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with _DRAWING, mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        paint(figure)
        _write_plain_numbers(figure)
        return as_svg(figure)


def as_svg(figure: Any) -> bytes:
    """Return a painted figure as SVG.

    Cost: five sixths of what a picture costs, half of it for the margins: matplotlib measures every text.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    # The same bytes as `savefig`, which first draws everything once more for backends that need it.
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _write_plain_numbers(figure: Any) -> None:
    """Write the numbers of logarithmic axes plainly: matplotlib writes them as formulas, which are not parsed here."""
    from matplotlib.ticker import LogFormatter, NullFormatter, StrMethodFormatter

    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        if isinstance(axis.get_major_formatter(), LogFormatter):
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        if isinstance(axis.get_minor_formatter(), LogFormatter):
            axis.set_minor_formatter(NullFormatter())


def look(name: str, place: int) -> dict[str, str]:
    """Return colour and dash of a line: fixed for challenger, champion and baseline, else by its position."""
    if name in MODEL_LOOKS:
        return MODEL_LOOKS[name]
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": DASHES[place // len(PALETTE) % len(DASHES)]}


def spreads(estimates: Iterable[Estimate | None]) -> np.ndarray:
    """Return values, low ends and high ends, float64 (3, estimates); NaN where there is none."""
    ends = [(estimate.value, estimate.low, estimate.high) if estimate else (None, None, None) for estimate in estimates]
    return np.array(ends, dtype=np.float64).reshape(-1, 3).T


def shorten(text: str, limit: int = 22) -> str:
    """Return a label that fits: control characters are replaced, and the middle is cut if it is too long."""
    clean = re.sub(r"[\x00-\x1f\x7f]", " ", text)
    return clean if len(clean) <= limit else f"{clean[: limit - 7]}…{clean[-6:]}"
