"""Figures of model performance; each function returns the bytes of one SVG.

Predictions have the form for metrics (`models/metrics/classification.py`); `models` maps a model's name
(challenger, champion, baseline) to its predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.judge.gates import signed
from models.judge.verdict import Difference, Slice, Verdict
from models.metrics import classification
from models.metrics.limits import within_limits
from models.metrics.metrics import METRICS, Array
from models.metrics.regression import sample_quantiles
from models.report.style import DASHES, INK, MODEL_LOOKS, MUTED, PALETTE, SEQUENTIAL, draw, look, shorten, spreads

MOST_POINTS = 300
MOST_SLICES = 40
MOST_NAMED_CLASSES = 30


def difference(verdict: Verdict) -> bytes:
    """Draw the challenger's gain over champion and baseline with its interval, beside the required gain."""
    rules = verdict.rules
    margin = verdict.margin if rules.mode == "superiority" else -verdict.margin
    rows = [
        ("gain over the champion", verdict.difference, margin),
        ("gain over the baseline", verdict.over_baseline, 0.0),
    ]
    measured = [row for row in rows if row[1] is not None and row[1].value is not None]

    def paint(figure: Any) -> None:
        panels = figure.subplots(max(1, len(measured)), 1, squeeze=False)[:, 0]
        for axes, (title, difference, threshold) in zip(panels, measured, strict=False):
            if difference is not None:
                _gain_panel(axes, verdict.sign, difference, threshold)
            axes.set_title(title, fontweight="normal")
        panels[-1].set_xlabel(f"{shorten(verdict.metric, 40)}, right is better")

    return draw(paint, height_in=0.5 + 1.05 * max(1, len(measured)))


def _gain_panel(axes: Any, sign: int, difference: Difference, threshold: float) -> None:
    ends = [sign * end for end in (difference.low, difference.high) if end is not None]
    gain, colour = sign * (difference.value or 0.0), PALETTE[0] if difference.reached else PALETTE[1]
    axes.axvline(threshold, color=INK, linewidth=1.6)
    axes.annotate(
        "asked", (threshold, 1), (3, -9), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=8
    )
    axes.plot(ends, [0] * len(ends), color=colour, linewidth=6, alpha=0.4, solid_capstyle="butt")
    axes.plot(gain, 0, "o", color=colour, markersize=8)
    axes.annotate(signed(gain), (gain, 0), (0, 8), textcoords="offset points", ha="center", color=INK)
    axes.set(yticks=[], ylim=(-1, 1.6))
    axes.margins(x=0.15)


def confusion_matrix(target: Array, prediction: Array, classes: Sequence[str], weight: Array | None = None) -> bytes:
    """Draw the share of each true class (row) predicted as each class (column), with counts where they fit.

    Examples count by their `weight` (example,); None: all alike.
    """
    counts = classification.confusion(target, prediction)(_weights(weight, len(target)))
    size = len(counts)
    shares = np.divide(counts, counts.sum(axis=1, keepdims=True), out=np.zeros_like(counts), where=counts > 0)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        image = axes.imshow(shares, vmin=0, vmax=1, cmap=SEQUENTIAL)
        figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.85)
        if size <= MOST_NAMED_CLASSES:
            names = [shorten(name, 14) for name in classes]
            long = sum(map(len, names)) > 40
            turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
            axes.set_xticks(range(size), names, **turned)
            axes.set_yticks(range(size), names)
        for row, column in np.ndindex(size, size) if size <= 12 else ():
            share, count = shares[row, column], round(float(counts[row, column]))
            text = f"{share:.0%}\n{count:,}" if size <= 5 else f"{count:,}" if count else ""
            colour = "black" if share > 0.55 else "white"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9 if size <= 8 else 7)
        axes.grid(visible=False)
        axes.set(xlabel="predicted class", ylabel="true class")

    return draw(paint, height_in=3.4 if size <= 4 else 5.0)


def roc_and_pr(
    target: Array, models: Mapping[str, Array], classes: Sequence[str] = (), weight: Array | None = None
) -> bytes:
    """Draw ROC and precision-recall curves: one for each model, or for multiclass each class of the first model.

    Examples count by their `weight` (example,); None: all alike.
    """
    curves = _curves(target, models, classes)

    def paint(figure: Any) -> None:
        left_axes, right_axes = figure.subplots(1, 2)
        for place, (name, (positive, score)) in enumerate(curves.items()):
            missed, caught, precision = curve_rates(positive, score, weight)
            auc, ap = (METRICS[metric].value(positive, score, weight) for metric in ("roc_auc", "pr_auc"))
            left_axes.plot(missed, caught, label=f"{shorten(name, 12)} {auc:.3f}", **look(name, place))
            right_axes.step(caught, precision, where="pre", label=f"{shorten(name, 12)} {ap:.3f}", **look(name, place))
        left_axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (1, 3)))
        left_axes.set(title="ROC", xlabel="false positive rate", ylabel="true positive rate")
        right_axes.set(title="Precision and recall", xlabel="recall", ylabel="precision")
        for axes, title in ((left_axes, "area"), (right_axes, "average precision")):
            axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
            axes.legend(title=title, loc="best", fontsize=8 if len(curves) > 4 else 9)

    return draw(paint, height_in=3.4)


def calibration(target: Array, models: Mapping[str, Array], weight: Array | None = None) -> bytes:
    """Draw predicted probability against observed frequency (diagonal: well calibrated), and a histogram below.

    Examples count by their `weight` (example,); None: all alike.
    """

    def paint(figure: Any) -> None:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        top.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (1, 3)))
        for place, (name, prediction) in enumerate(models.items()):
            stated, observed, total = classification.reliability(target, prediction, weight)
            filled = total > 0
            error = METRICS["ece"].value(target, prediction, weight)
            label = f"{name} (error {error:.3f})"
            top.plot(stated[filled], observed[filled], marker="o", markersize=4, label=label, **look(name, place))
            edges = np.linspace(0, 1, len(total) + 1)
            bottom.stairs(total / total.sum(), edges, **look(name, place))
        top.set(ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1.02))
        bottom.set(xlabel="stated chance", ylabel="share of rows", ylim=(0, None))
        top.legend(loc="upper left")

    return draw(paint, height_in=4.0)


def residuals(target: Array, prediction: Array, name: str = "target", weight: Array | None = None) -> bytes:
    """Draw predicted against true values as a density, and the distribution of the errors, in the target's own unit.

    Examples count by their `weight` (example,); None: all alike.
    """
    weights = _weights(weight, len(target))
    truth, guess = np.asarray(target, dtype=np.float64), np.asarray(prediction, dtype=np.float64)
    error = guess - truth
    middle = float(sample_quantiles(error, 0.5, weight)[0])

    def paint(figure: Any) -> None:
        from matplotlib.colors import LogNorm

        left_axes, right_axes = figure.subplots(1, 2, width_ratios=[1.15, 1])
        low, high = padded(np.r_[truth, guess])
        counts, _, _ = np.histogram2d(truth, guess, bins=60, range=[[low, high], [low, high]], weights=weights)
        density = np.where(counts > 0, counts, np.nan).T
        image = left_axes.imshow(
            density,
            origin="lower",
            extent=(low, high, low, high),
            norm=LogNorm(min(1.0, counts[counts > 0].min()), max(2, counts.max())),
            aspect="equal",
        )
        bar = figure.colorbar(image, ax=left_axes, label="examples in a cell", shrink=0.8)
        if counts.max() < 10:  # no second power of ten would have a label
            bar.ax.yaxis.set_minor_formatter("{x:g}")
        left_axes.plot([low, high], [low, high], color=PALETTE[1], linewidth=1.2, linestyle="--")
        unit = shorten(name, 24)
        left_axes.set(title="Predicted and true", xlabel=f"true {unit}", ylabel=f"predicted {unit}")
        ends = padded(np.quantile(error, [0.001, 0.999]))
        right_axes.hist(error, bins=50, range=ends, color=PALETTE[0], weights=weights)
        right_axes.axvline(0, color=INK, linewidth=1)
        right_axes.axvline(middle, color=PALETTE[1], linestyle="--")
        right_axes.set(title="Errors", ylabel="examples")  # a longer title would be cut where the axes are narrow
        right_axes.set_xlabel(f"predicted − true\n{unit}\nmedian {signed(middle)}")

    return draw(paint, height_in=3.5)


def scores(
    target: Array, prediction: Array, classes: Sequence[str], name: str = "target", weight: Array | None = None
) -> bytes:
    """Draw the distribution of the predictions: by true class, or beside the true values of a regression.

    Examples count by their `weight` (example,); None: all alike.
    """
    parts = _score_parts(np.asarray(target), prediction, classes, _weights(weight, len(target)))
    low, high = (0.0, 1.0) if classes else padded(np.concatenate([values for values, _ in parts.values()]))

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, (part, (values, weights)) in enumerate(parts.items()):
            share = weights / (weights.sum() or 1.0)
            counts, edges = np.histogram(values, bins=40, range=(low, high), weights=share)
            colour = look(part, place)["color"]
            axes.stairs(counts, edges, fill=True, alpha=0.25, color=colour)
            label = f"{shorten(part)} ({len(values):,})"
            axes.stairs(counts, edges, color=colour, linestyle=DASHES[place % 2], linewidth=1.6, label=label)
        chance = f"stated chance of {shorten(classes[1])}" if len(classes) == 2 else "highest stated chance"
        axes.set(xlabel=chance if classes else shorten(name, 40), ylabel="share of the group", xlim=(low, high))
        axes.legend(loc="best")

    return draw(paint, height_in=2.8)


def slices(verdict: Verdict) -> bytes:
    """Draw the metric of each slice with its interval, champion beside challenger; dashed: all test examples."""
    chosen = [part for part in verdict.slices if part.challenger.value is not None][:MOST_SLICES]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, marker, shift in (("challenger", "o", -0.14), ("champion", "D", 0.14)):
            values, low, high = spreads(getattr(part, name) for part in chosen)
            positions, colour = np.arange(len(chosen)) + shift, MODEL_LOOKS[name]["color"]
            axes.hlines(positions, low, high, color=colour, linewidth=1.6)
            if np.isfinite(values).any():
                axes.plot(values, positions, marker, color=colour, markersize=5, label=name)
        if verdict.challenger.value is not None:
            axes.axvline(
                verdict.challenger.value,
                color=MODEL_LOOKS["challenger"]["color"],
                linewidth=1,
                linestyle="--",
            )
        axes.set_yticks(range(len(chosen)), [_slice_name(part) for part in chosen])
        for label, part in zip(axes.get_yticklabels(), chosen, strict=True):
            label.set(fontsize=8.5, fontweight="bold" if part.lost else "normal")
        axes.set_ylim(max(1, len(chosen)) - 0.4, -0.6)
        axes.set_xlim(within_limits(verdict.metric, *axes.get_xlim()))
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"{shorten(verdict.metric, 40)} ({verdict.rules.confidence:.0%} interval)")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper right", ncols=2)

    return draw(paint, height_in=1.2 + 0.3 * max(1, len(chosen)))


def bits_by_position(models: Mapping[str, Array], references: Mapping[str, float | None]) -> bytes:
    """Draw the bits of a character by its position in the window, that is by the number of characters read before it.

    Args:
        models: Bits (window, position) of each model, by its name.
        references: Bits per character of references, by name; drawn as flat lines.
    """

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, (name, bits) in enumerate(models.items()):
            means = np.asarray(bits, dtype=np.float64).mean(axis=0)
            axes.plot(np.arange(1, len(means) + 1), means, label=f"{name} {means.mean():.3f}", **look(name, place))
        for name, value in references.items():
            if value is not None:
                axes.axhline(value, color=MUTED, linewidth=1, linestyle=(0, (1, 3)), label=f"{name} {value:.3f}")
        axes.set(xlabel="place in the window", ylabel="bits a character", ylim=(0, None), xscale="log")
        axes.legend(loc="upper right")

    return draw(paint)


def _slice_name(part: Slice) -> str:
    lost = "▼ lost  " if part.lost else ""
    return f"{lost}{shorten(part.column, 14)} = {shorten(part.value, 18)} ({part.num_samples:,})"


def _curves(target: Array, models: Mapping[str, Array], classes: Sequence[str]) -> dict[str, tuple[Array, Array]]:
    first = next(iter(models.values()))
    if first.ndim == 1:
        return {name: (np.asarray(target) == 1, score) for name, score in models.items()}
    present = [index for index in range(first.shape[1]) if (np.asarray(target) == index).any()]
    return {classes[index]: (np.asarray(target) == index, first[:, index]) for index in present[: 2 * len(PALETTE)]}


def curve_rates(positive: Array, score: Array, weight: Array | None = None) -> tuple[Array, Array, Array]:
    """Return false positive rate, true positive rate and precision at falling thresholds, thinned.

    Examples count by their `weight` (example,); None: all alike.
    """
    weights = np.ones(len(score)) if weight is None else weight
    order = np.argsort(-score, kind="stable")
    order = order[weights[order] > 0]
    weights_in_order = weights[order]
    ends = np.flatnonzero(np.r_[np.diff(score[order]) != 0, True])
    caught, false = (
        np.cumsum(weights_in_order * positive[order])[ends],
        np.cumsum(weights_in_order * ~positive[order])[ends],
    )
    rate, miss = (part / part[-1] if part[-1] > 0 else part for part in (caught, false))
    points = np.unique(np.linspace(0, len(ends) - 1, MOST_POINTS).astype(np.int64))
    precision = caught / (caught + false)
    return np.r_[0.0, miss[points]], np.r_[0.0, rate[points]], np.r_[precision[points[0]], precision[points]]


def _weights(weight: Array | None, num: int) -> Array:
    return np.ones(num) if weight is None else weight


def _score_parts(
    target: Array, prediction: Array, classes: Sequence[str], weights: Array
) -> dict[str, tuple[Array, Array]]:
    """Return the values and the weights of each part of the examples."""
    if not classes:
        return {"true": (target, weights), "predicted": (prediction, weights)}
    if prediction.ndim == 1:
        named = {name: target == index for index, name in enumerate(classes)}
        return {name: (prediction[ours], weights[ours]) for name, ours in named.items()}
    right, highest = classification.predicted_class(prediction) == target, prediction.max(axis=1)
    named = {"rightly classified": right, "wrongly classified": ~right}
    return {name: (highest[ours], weights[ours]) for name, ours in named.items()}


def padded(values: Array) -> tuple[float, float]:
    """Return the range of the values with a small margin."""
    low, high = float(np.min(values)), float(np.max(values))
    pad = 0.03 * (high - low) or max(1e-6, 0.05 * abs(high))
    return low - pad, high + pad
