"""Figures of models with several outputs of a row, and of rankings; each function returns the bytes of one SVG.

Targets and predictions are (example, output); the first outputs are drawn, at most `MOST_OUTPUTS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import ranking
from models.metrics.metrics import METRICS, Array
from models.report.figures import curve_rates, padded
from models.report.style import MUTED, PALETTE, draw, look, shorten

MOST_OUTPUTS = 9
MOST_PLACES = 20
_BINS = 12


def targets(target: Array, prediction: Array, names: Sequence[str]) -> bytes:
    """Draw predicted against true values of each target, in its own unit."""
    outputs = list(enumerate(names))[:MOST_OUTPUTS]

    def paint(figure: Any) -> None:
        rows = -(-len(outputs) // 3)
        panels = figure.subplots(rows, min(3, len(outputs)), squeeze=False).ravel()
        for axes, (index, name) in zip(panels, outputs, strict=False):
            low, high = padded(np.r_[target[:, index], prediction[:, index]])
            axes.plot(target[:, index], prediction[:, index], ".", markersize=2, color=PALETTE[0], rasterized=True)
            axes.plot([low, high], [low, high], color=PALETTE[1], linewidth=1.2, linestyle="--")
            axes.set(title=shorten(name, 24), xlabel="true", ylabel="predicted", xlim=(low, high), ylim=(low, high))
        for axes in panels[len(outputs) :]:
            axes.set_visible(False)

    return draw(paint, height_in=0.6 + 2.6 * -(-len(outputs) // 3))


def quantiles(target: Array, prediction: Array, levels: Sequence[float], weight: Array | None = None) -> bytes:
    """Draw the share of true values below each quantile against its level, and the interval by its middle.

    Examples count by their `weight` (example,); None: all alike.
    """
    weights = np.ones(len(target)) if weight is None else weight
    below = np.average(target <= prediction, axis=0, weights=weights)
    middle = prediction[:, len(levels) // 2]
    edges = np.unique(np.quantile(middle, np.linspace(0, 1, _BINS + 1)))
    bins = np.clip(np.searchsorted(edges, middle, "right") - 1, 0, max(0, len(edges) - 2))
    covered = (target[:, 0] >= prediction[:, 0]) & (target[:, 0] <= prediction[:, -1])
    counts = np.bincount(bins, weights)
    shares = np.bincount(bins, covered * weights)[counts > 0] / counts[counts > 0]
    centres = np.bincount(bins, middle * weights)[counts > 0] / counts[counts > 0]

    def paint(figure: Any) -> None:
        left_axes, right_axes = figure.subplots(1, 2)
        left_axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (1, 3)))
        left_axes.plot(levels, below, "o-", color=PALETTE[0])
        left_axes.set(title="Calibration", xlabel="level of the quantile", ylabel="share of true values below it")
        left_axes.set(xlim=(0, 1), ylim=(0, 1))
        right_axes.axhline(levels[-1] - levels[0], color=MUTED, linewidth=1, linestyle=(0, (1, 3)))
        right_axes.plot(centres, shares, "o-", color=PALETTE[0])
        right_axes.set(
            title="Coverage of the interval", xlabel="predicted middle", ylabel="share within", ylim=(0, 1.02)
        )

    return draw(paint, height_in=3.3)


def labels(target: Array, prediction: Array, names: Sequence[str], weight: Array | None = None) -> bytes:
    """Draw the precision-recall curve of each label that both occurs and is absent.

    Examples count by their `weight` (example,); None: all alike.
    """
    mixed = [index for index in range(len(names)) if 0 < target[:, index].mean() < 1][:MOST_OUTPUTS]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, index in enumerate(mixed):
            _, caught, precision = curve_rates(target[:, index] == 1, prediction[:, index], weight)
            average = METRICS["pr_auc"].value(target[:, index], prediction[:, index], weight)
            label = f"{shorten(names[index], 18)} {average:.3f}"
            axes.step(caught, precision, where="pre", label=label, **look(names[index], place))
        axes.set(xlabel="recall", ylabel="precision", xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
        if mixed:
            axes.legend(title="average precision", loc="best", fontsize=8)

    return draw(paint, height_in=3.6)


def places(target: Array, models: Mapping[str, Array], weight: Array | None = None) -> bytes:
    """Draw the NDCG of the first k places for each k up to the largest group's rows, at most `MOST_PLACES`.

    Args:
        target: Grades and groups (example, 2).
        models: Scores (example,) of each model, by its name.
        weight: Of the examples (example,); None: all alike.
    """
    weights = np.ones(len(target)) if weight is None else weight
    cutoffs = np.arange(1, min(MOST_PLACES, int(np.bincount(ranking.groups_of(target)).max())) + 1)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, (name, scores) in enumerate(models.items()):
            values = [ranking.ndcg(target, scores, int(k))(weights) for k in cutoffs]
            axes.plot(cutoffs, values, label=name, **look(name, place))
        axes.set(xlabel="first places of each group (k)", ylabel="NDCG@k", ylim=(None, 1.02))
        axes.legend(loc="lower right")

    return draw(paint, height_in=2.8)
