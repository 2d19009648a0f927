"""Figures of a model's training: its epochs, and the search for its settings; each function returns one SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from models.report.style import INK, MUTED, PALETTE, SEQUENTIAL, draw, shorten
from models.training.search_space import NET, Trial


class TrainingCourse(NamedTuple):
    """The course of a training.

    Attributes:
        epochs: The report of each epoch, in order: `train_loss`, `val_loss`, `val_<metric>`.
        best_epoch: The epoch whose weights were kept, counted from 1; None or 0: not known.
    """

    epochs: Sequence[Mapping[str, float]]
    best_epoch: int | None = None


def learning_curves(fits: Sequence[TrainingCourse], metric: str) -> bytes:
    """Draw loss and the goal's metric after each epoch; the best epoch is marked.

    Args:
        fits: One, or those of the folds of a bag, which share the axes.
        metric: The goal's metric.
    """

    def paint(figure: Any) -> None:
        left_axes, right_axes = figure.subplots(1, 2)
        for place, fit in enumerate(fits):
            training, validation = ("", "") if place else ("training", "validation")  # the legend names them once
            _line(left_axes, fit, "train_loss", training, PALETTE[1], "--")
            _line(left_axes, fit, "val_loss", validation, PALETTE[0], "-")
            _line(right_axes, fit, f"val_{metric}", validation, PALETTE[0], "-")
        left_axes.set(title="Loss", xlabel="epoch", ylabel="loss")
        right_axes.set(title=shorten(metric, 30), xlabel="epoch", ylabel=shorten(metric, 30))
        for axes in (left_axes, right_axes):
            axes.xaxis.get_major_locator().set_params(integer=True)
            for place, best in enumerate(sorted({fit.best_epoch for fit in fits if fit.best_epoch})):
                axes.axvline(best, color=MUTED, linewidth=1, linestyle=":", label="" if place else "kept")
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc="best")

    return draw(paint, height_in=2.9)


def search_figures(
    trials: Sequence[Trial],
    best: Trial,
    importances: Mapping[str, float],
    metric: str,
    direction: Literal["maximize", "minimize"],
    log: Sequence[str],
) -> dict[str, bytes]:
    """Draw a search, by file name: the course of all trials, and the settings of the family with the best one.

    Args:
        trials: In order.
        best: The best one.
        importances: Of settings; without any they are not drawn.
        metric: The goal's metric.
        direction: Which way is better.
        log: The settings that are drawn on a logarithmic axis.
    """
    net = best.params.get(NET)  # other families have other settings
    valued = [
        ({path: value for path, value in trial.params.items() if path != NET}, trial.value)
        for trial in trials
        if trial.value is not None and trial.params.get(NET) == net
    ]
    states = ["fail" if trial.state == "failed" else trial.state for trial in trials]
    params, values = [params_of_trial for params_of_trial, _ in valued], [value for _, value in valued]
    figures = {
        "search-history.svg": search_history([trial.value for trial in trials], states, direction, metric),
        "search-parallel.svg": parallel_coordinates(params, values, metric, direction, log),
    }
    return figures | ({"search-importance.svg": importance_bars(importances)} if importances else {})


def search_history(
    values: Sequence[float | None],
    states: Sequence[str],
    direction: Literal["maximize", "minimize"],
    metric: str,
) -> bytes:
    """Draw the value of each trial in order, the best so far, and the trials that were pruned or failed.

    Args:
        values: One for each trial; None if it has none.
        states: `complete`, `pruned` or `fail`, one for each trial.
        direction: Which way is better.
        metric: The goal's metric.
    """
    value = np.array([np.nan if number is None else number for number in values], dtype=np.float64)
    state = np.array([word.lower() for word in states], dtype=np.str_)
    number = np.arange(1, len(value) + 1)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for name, marker, colour in (("complete", "o", PALETTE[0]), ("pruned", "x", MUTED)):
            chosen = (state == name) & np.isfinite(value)
            if chosen.any():
                axes.plot(number[chosen], value[chosen], marker, color=colour, markersize=6, label=name)
        failed = number[state == "fail"]
        if len(failed):
            bottom = axes.get_xaxis_transform()
            axes.plot(failed, [0.02] * len(failed), "v", color=PALETTE[1], transform=bottom, label="failed")
        finished = np.where(state == "complete", value, np.nan)
        if np.isfinite(finished).any():
            best = np.fmax if direction == "maximize" else np.fmin
            axes.step(number, best.accumulate(finished), where="post", color=INK, linewidth=1.3, label="best so far")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="trial", ylabel=f"validation {shorten(metric, 30)}")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper right", ncols=4)

    return draw(paint, height_in=2.9)


def parallel_coordinates(
    settings: Sequence[Mapping[str, Any]],
    values: Sequence[float],
    metric: str,
    direction: Literal["maximize", "minimize"],
    log: Sequence[str] = (),
) -> bytes:
    """Draw each finished trial as a line through its settings; brighter lines have better values.

    Args:
        settings: The settings of each trial; numbers or other values, shown as text.
        values: The trial's metric.
        metric: Its name.
        direction: Which way is better.
        log: Names of settings that were searched on a log scale.
    """
    names = sorted({name for params in settings for name in params})
    columns = [_axis([params.get(name) for params in settings], name in log) for name in names]
    value = np.asarray(values, dtype=np.float64)
    order = np.argsort(value if direction == "maximize" else -value)

    def paint(figure: Any) -> None:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        axes = figure.subplots()
        low, high = (float(value.min()), float(value.max())) if len(value) else (0.0, 1.0)
        colours = SEQUENTIAL if direction == "maximize" else f"{SEQUENTIAL}_r"
        shades = ScalarMappable(Normalize(low, high if high > low else low + 1e-9), colours)
        for place in order:
            heights = [column[0][place] for column in columns]
            axes.plot(range(len(names)), heights, color=shades.to_rgba(value[place]), linewidth=1.6, alpha=0.9)
        for place, (_, ticks) in enumerate(columns):
            axes.axvline(place, color=MUTED, linewidth=1)
            for height, text in ticks:
                axes.text(place + 0.03, height, text, fontsize=8, va="center", color=INK, bbox=_HALO)
        axes.set_xticks(range(len(names)), [shorten(name, 20) for name in names], rotation=20, ha="right")
        axes.set(yticks=[], ylim=(-0.06, 1.06), xlim=(-0.1, len(names) - 0.6))
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        figure.colorbar(shades, ax=axes, label=f"validation {shorten(metric, 30)}")

    return draw(paint, height_in=3.4)


def importance_bars(importance: Mapping[str, float]) -> bytes:
    """Draw the importance of each setting or feature, most important first; at most 20."""
    ranked = sorted(importance.items(), key=lambda name_and_value: -name_and_value[1])[:20]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        shares = [share for _, share in ranked]
        bars = axes.barh(range(len(ranked)), shares, color=PALETTE[0], height=0.65)
        axes.bar_label(bars, [f"{share:.2g}" for share in shares], padding=4, fontsize=8.5)
        axes.set_yticks(range(len(ranked)), [shorten(name, 30) for name, _ in ranked])
        axes.set_ylim(max(1, len(ranked)) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("share of the variation explained")

    return draw(paint, height_in=0.9 + 0.28 * max(1, len(ranked)))


_HALO = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.8}


def _line(axes: Any, fit: TrainingCourse, key: str, label: str, colour: str, dash: str) -> None:
    points = [(place + 1, epoch[key]) for place, epoch in enumerate(fit.epochs) if key in epoch]
    if points:
        marker = "o" if len(points) < 25 else None
        axes.plot(
            *zip(*points, strict=True),
            label=label,
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=3.5,
        )


def _axis(values: list[Any], log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Return heights between 0 and 1 (NaN where a trial lacks the setting), and the ticks of one axis."""
    set_values = [setting for setting in values if setting is not None]
    if all(isinstance(setting, (int, float)) and not isinstance(setting, bool) for setting in set_values):
        numbers = np.array([np.nan if setting is None else setting for setting in values], dtype=np.float64)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        scale = np.log if log and low > 0 else np.asarray
        span = float(scale(high) - scale(low)) or 1.0
        heights = ((scale(numbers) - scale(low)) / span).tolist()
        return heights, [(0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")] if high > low else [(0.0, f"{low:.3g}")]
    choices = sorted({str(setting) for setting in set_values})
    place = {choice: index / max(1, len(choices) - 1) for index, choice in enumerate(choices)}
    ticks = [(height, shorten(choice, 16)) for choice, height in place.items()]
    return [np.nan if setting is None else place[str(setting)] for setting in values], ticks
