"""Figures of a backtest; each function returns the bytes of one SVG."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.backtest.regret import Backtest
from models.judge.gates import number
from models.report.style import INK, PALETTE, draw, look, shorten, spreads

MOST_TICKS = 14
_OUTCOMES = {"promoted": ("o", PALETTE[2]), "kept": ("X", PALETTE[1]), "failed": ("v", INK)}
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")


def metric_over_time(result: Backtest) -> bytes:
    """Draw the metric in each period with its interval: one line for all policies that had the same champions."""
    groups = result.alike()
    offsets = np.linspace(-0.2, 0.2, len(groups)) if len(groups) > 1 else [0.0]
    place_of = {regret.policy: place for place, regret in enumerate(result.policy_regrets)}

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for names, offset in zip(groups, offsets, strict=True):
            regret = result.policy_regrets[place_of[names[0]]]
            positions = np.arange(len(regret.points)) + offset
            colours = look(names[0], place_of[names[0]])
            values, low, high = spreads(point.metric for point in regret.points)
            axes.plot(positions, values, label=shorten(", ".join(names), 60), linewidth=1.3, **colours)
            axes.vlines(positions, low, high, color=colours["color"], linewidth=2.2, alpha=0.35)
            fresh = [n for n, step in enumerate(result.course(names[0]).steps) if n and step.age == 0]
            axes.plot(positions[fresh], values[fresh], "o", color=colours["color"], markersize=6, fillstyle="none")
        _periods(axes, result)
        axes.set_ylabel(shorten(result.metric, 30))
        figure.legend(loc="outside upper left", ncols=1)

    return draw(paint, height_in=3.3 + 0.16 * len(groups))


def loops_over_time(result: Backtest) -> bytes:
    """Draw one row for each policy, with a mark at the end of each period in which it ran a loop."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for outcome, (marker, colour) in _OUTCOMES.items():
            points = [
                (place, row)
                for row, course in enumerate(result.courses)
                for place, step in enumerate(course.steps)
                if step.loop and step.loop.outcome == outcome
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True), marker, color=colour, markersize=8, linestyle="none", label=outcome
                )
        axes.set_yticks(range(len(result.courses)), [shorten(course.policy) for course in result.courses])
        axes.set_ylim(len(result.courses) - 0.4, -0.6)
        _periods(axes, result)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper right", ncols=3)

    return draw(paint, height_in=1.1 + 0.3 * len(result.courses))


def regrets(result: Backtest) -> bytes:
    """Draw each policy's loss against the best policy with its interval, beside the spec's margin."""
    return draw(lambda figure: _regrets(figure.subplots(), result), height_in=1.0 + 0.36 * len(result.policy_regrets))


def _regrets(axes: Any, result: Backtest) -> None:
    axes.axvline(result.margin, color=INK, linewidth=1.4)
    axes.annotate(
        "margin",
        (result.margin, 1),
        (3, -9),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=8,
    )
    rows = range(len(result.policy_regrets))
    colours = [look(regret.policy, row)["color"] for row, regret in enumerate(result.policy_regrets)]
    values, low, high = spreads(regret.regret for regret in result.policy_regrets)
    axes.hlines(rows, low, high, color=colours, linewidth=5, alpha=0.4)
    axes.scatter(values, rows, s=49, color=colours)
    axes.set_yticks(rows, [shorten(regret.policy) for regret in result.policy_regrets])
    axes.set_ylim(len(result.policy_regrets) - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{shorten(result.metric, 30)} lost, right is worse")


def spent(result: Backtest) -> bytes:
    """Draw the mean metric against device-seconds, one mark for each policy."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        means = spreads(regret.mean for regret in result.policy_regrets).T
        for place, (regret, (value, low, high)) in enumerate(zip(result.policy_regrets, means, strict=True)):
            colour, marker = look(regret.policy, place)["color"], _MARKERS[place % len(_MARKERS)]
            axes.vlines(regret.device_seconds, low, high, color=colour, linewidth=2.2, alpha=0.35)
            label = f"{shorten(regret.policy)} {number(regret.mean.value)}, {regret.device_seconds:,.0f} s"
            axes.plot(regret.device_seconds, value, marker, color=colour, markersize=7, label=label)
        if result.direction == "minimize":
            axes.invert_yaxis()
        axes.set(xlabel="device-seconds", ylabel=f"mean {shorten(result.metric, 26)}")
        axes.margins(x=0.08, y=0.12)
        figure.legend(loc="outside right upper", fontsize=8)

    return draw(paint, height_in=3.0)


def _periods(axes: Any, result: Backtest) -> None:
    names = [span.name for span in result.periods]
    step = -(-len(names) // MOST_TICKS)
    ticks = list(range(0, len(names), step))
    long = max((len(names[place]) for place in ticks), default=0) * len(ticks) > 60
    turned: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(ticks, [names[place] for place in ticks], **turned)
    axes.set_xlim(-0.6, len(names) - 0.4)
