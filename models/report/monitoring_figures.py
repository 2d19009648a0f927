"""Figures of monitoring, over the windows; each function returns the bytes of one SVG."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from models.judge.verdict import Estimate
from models.metrics.limits import within_limits
from models.monitoring.report import WindowReport
from models.report.style import INK, MUTED, PALETTE, SEQUENTIAL, draw, shorten, spreads

MOST_FEATURES = 15
MOST_COLUMNS = 60
RED = "#a3200d"


def metric_over_time(windows: Sequence[WindowReport], metric: str, promoted: Estimate | None) -> bytes:
    """Draw the realised metric with its interval, the estimate dashed, and the metric at promotion."""
    times, dates = _times(windows)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        if promoted is not None and promoted.value is not None:
            axes.axhline(promoted.value, color=INK, linewidth=1, label="at promotion")
            if promoted.low is not None and promoted.high is not None:
                axes.axhspan(promoted.low, promoted.high, color=MUTED, alpha=0.15, linewidth=0)
        values, low, high = spreads(window.realised for window in windows)
        decayed = np.array([window.decayed for window in windows], dtype=bool)
        axes.vlines(times, low, high, color=np.where(decayed, RED, PALETTE[0]), linewidth=2.4, alpha=0.45)
        for chosen, colour, marker, label in ((~decayed, PALETTE[0], "o", "realised"), (decayed, RED, "v", "decayed")):
            if np.isfinite(values[chosen]).any():
                points = np.where(chosen, values, np.nan)
                axes.plot(times, points, marker, color=colour, markersize=4.5, label=label)
        estimated = np.array([window.estimated for window in windows], dtype=np.float64)
        if np.isfinite(estimated).any():
            axes.plot(times, estimated, color=PALETTE[1], linestyle="--", linewidth=1.4, label="estimated, no labels")
        axes.set_ylabel(shorten(metric, 30))
        axes.set_ylim(within_limits(metric, *axes.get_ylim()))
        _dated(axes, times, dates)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper right", ncols=4)

    return draw(paint, height_in=3.2)


def prediction_drift(windows: Sequence[WindowReport]) -> bytes:
    """Draw the PSI of each window's score, the limit of drift, and the windows above it."""
    times, dates = _times(windows)
    names = list(dict.fromkeys(drift.name for window in windows for drift in window.predictions))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, name in enumerate(names):
            rows = [next((drift for drift in window.predictions if drift.name == name), None) for window in windows]
            values = [np.nan if row is None or row.psi is None else row.psi for row in rows]
            axes.plot(times, values, marker="o", markersize=3.5, color=PALETTE[place], label=name)
            seen = [(time, row) for time, row in zip(times, rows, strict=True) if row is not None]
            if drifted := [(time, row.psi) for time, row in seen if row.level != "none"]:
                axes.plot(*zip(*drifted, strict=True), "v", color=RED, markersize=7, label=None if place else "drifts")
            if chance := [(time, row.psi) for time, row in seen if row.is_within_chance]:
                axes.plot(*zip(*chance, strict=True), "o", color=PALETTE[place], markerfacecolor="white", markersize=5)
            limits = [np.nan if row is None else row.warn_at for row in rows]
            label = None if place else "limit"
            axes.step(times, limits, where="mid", color=PALETTE[place], linestyle=":", linewidth=1.4, label=label)
        axes.set(ylabel="PSI against the test rows", ylim=(0, None))
        _dated(axes, times, dates)
        axes.legend(loc="upper left", ncols=4)

    return draw(paint, height_in=2.6)


def feature_map(windows: Sequence[WindowReport]) -> bytes:
    """Draw the PSI of the features with the largest drift (row) in each of the last windows (column)."""
    newest = windows[-MOST_COLUMNS:]
    names = _furthest(newest)
    values = np.full((len(names), len(newest)), np.nan)
    for column, window in enumerate(newest):
        for drift in window.features:
            if drift.name in names and drift.psi is not None:
                values[names.index(drift.name), column] = drift.psi

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        image = axes.imshow(values, aspect="auto", vmin=0, vmax=0.4, cmap=SEQUENTIAL, interpolation="nearest")
        figure.colorbar(image, ax=axes, label="PSI", extend="max", shrink=0.9)
        axes.set_yticks(range(len(names)), [shorten(name, 24) for name in names])
        ticks = np.unique(np.linspace(0, len(newest) - 1, min(5, len(newest))).astype(np.int64))
        axes.set_xticks(ticks, [_date(newest[tick].begin) for tick in ticks])
        axes.grid(visible=False)

    return draw(paint, height_in=1.0 + 0.24 * max(3, len(names)))


def _furthest(windows: Sequence[WindowReport]) -> list[str]:
    furthest: dict[str, float] = {}
    for window in windows:
        for drift in window.features:
            furthest[drift.name] = max(furthest.get(drift.name, 0.0), drift.psi or 0.0)
    return sorted(furthest, key=lambda name: -furthest[name])[:MOST_FEATURES]


def _times(windows: Sequence[WindowReport]) -> tuple[list[float], bool]:
    """Return the position of each window: its middle in time, or its number if the times are too close together."""
    middles = [(window.begin + window.end) / 2 for window in windows]
    span = middles[-1] - middles[0] if middles else 0.0
    apart = all(later > earlier for earlier, later in itertools.pairwise(middles))
    if apart and span > 0 and min(np.diff(middles), default=0.0) > span / 500:
        return middles, True
    return [float(place) for place in range(1, len(windows) + 1)], False


def _dated(axes: Any, times: Sequence[float], dates: bool) -> None:
    if not dates:
        axes.set_xlabel("window")
        axes.xaxis.get_major_locator().set_params(integer=True)
        return
    ticks = np.linspace(times[0], times[-1], min(5, len(times)))
    axes.set_xticks(ticks, [_date(float(tick), times[-1] - times[0]) for tick in ticks])


def _date(timestamp: float, span: float = 30 * 86_400) -> str:
    when = datetime.fromtimestamp(timestamp, UTC)
    return f"{when:%d %b %Y}" if span > 3 * 86_400 else f"{when:%d %b %H:%M}"
