"""Metrics of models with several outputs of a row: several numbers, quantiles of one number, or labels.

Legend: target and prediction (example, output); for quantiles each column of the target is the same. A metric of one
output becomes one of several by a mean over the outputs; functions here make it so. Labels follow scikit-learn's
definitions: macro is the mean over labels, micro counts all labels together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from models.metrics.evaluator import (
    Array,
    Evaluator,
    Smooth,
    mean_of_defined,
    ratio_influence,
    smooth_if_all,
    weighted_mean,
)

Prepare = Callable[[Array, Array], Evaluator]


class Output(Protocol):
    """The facts of an output that metrics need; `models.data.target_encoding.OutputColumn` has them."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def scale(self) -> float:
        """The standard deviation of its training values."""

    @property
    def quantile(self) -> float | None:
        """The share of true values that should lie below the prediction."""

    @property
    def horizon(self) -> int | None:
        """Steps ahead, of a series."""


def over_targets(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the mean over targets of a metric without a unit; NaN if it is undefined for one of them."""
    return _mean_of(prepare, np.ones(len(outputs)))


def scaled_over_targets(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the mean over targets of a metric in the target's unit, each divided by the target's training scale.

    Horizons are of one target: their mean is in its unit.
    """
    return _mean_of(prepare, np.array([output.scale if output.horizon is None else 1.0 for output in outputs]))


def over_labels(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the mean over the labels for which a metric is defined (macro); NaN if it is for none."""
    return lambda target, prediction: mean_of_defined(_parts(prepare, target, prediction, len(outputs)))


def exact_match(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the share of examples with every label right: scikit-learn's `accuracy_score` of labels."""
    del prepare, outputs
    return lambda target, prediction: weighted_mean(((prediction > 0.5) == (target > 0.5)).all(axis=1))


def f1_micro(target: Array, prediction: Array) -> Evaluator:
    """Harmonic mean of precision and recall over all labels of all examples together; 0 when both are."""
    true, called = target > 0.5, prediction > 0.5
    hits, total = (true & called).sum(axis=1).astype(np.float64), (true.sum(axis=1) + called.sum(axis=1)) / 2

    def value(weight: Array) -> float:
        if not weight.sum() > 0:
            return float("nan")
        highest = float(np.einsum("i,i->", total, weight))
        return float(np.einsum("i,i->", hits, weight)) / highest if highest > 0 else 0.0

    return Smooth(value, lambda weight: ratio_influence(hits, total, weight))


def pinball(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the mean pinball loss of the quantiles, in the target's unit.

    Source: Koenker and Bassett (1978), Econometrica 46(1).
    """
    del prepare
    levels = _levels(outputs)
    return lambda target, prediction: weighted_mean(_pinball(target, prediction, levels).mean(axis=1))


def coverage_gap(prepare: Prepare, outputs: Sequence[Output]) -> Prepare:
    """Return the distance between the share of true values within the outermost quantiles and the share intended.

    The share is that of all horizons together.
    """
    del prepare
    levels = _levels(outputs)

    def several(target: Array, prediction: Array) -> Evaluator:
        covered = weighted_mean(is_covered(target, prediction, outputs).mean(axis=1))
        return lambda weight: abs(covered(weight) - float(levels[-1] - levels[0]))

    return several


def is_covered(target: Array, prediction: Array, outputs: Sequence[Output]) -> Array:
    """Return whether true values lie between their lowest and highest predicted quantile, bool (example, horizon)."""
    parts = [
        (target[:, positions[0]], prediction[:, positions[0]], prediction[:, positions[-1]])
        for positions in by_horizon(outputs).values()
    ]
    return np.stack([(low <= true) & (true <= high) for true, low, high in parts], axis=1)


def horizon_name(ahead: int) -> str:
    """Return the name of the output for the value `ahead` steps after a window, and of its column of true values."""
    return f"h{ahead}"


def by_horizon(outputs: Sequence[Output]) -> dict[str, list[int]]:
    """Return the places of the outputs of each horizon, by its name; of outputs without a horizon all, by "".

    Several outputs of a horizon are its quantiles, ascending.
    """
    places: dict[str, list[int]] = {}
    for position, output in enumerate(outputs):
        places.setdefault("" if output.horizon is None else horizon_name(output.horizon), []).append(position)
    return places


def needs_outputs(target: Array, prediction: Array) -> Evaluator:
    """Raise: a metric of quantiles needs to know which they are, see `Metric.of`."""
    raise TypeError("a metric of quantiles is computed by `Metric.of(outputs)`")


def output_figures(
    named: dict[str, Prepare],
    outputs: Sequence[Output],
    target: Array,
    prediction: Array,
    weight: Array | None = None,
) -> dict[str, dict[str, float]]:
    """Return figures of each output by itself, in its own unit: output -> name -> value.

    A quantile has its pinball loss and the share of true values below it, which should be its level.

    Args:
        named: The metrics of one output, by name.
        outputs: The outputs.
        target: True values (example, output).
        prediction: Predictions (example, output).
        weight: Of the examples (example,); None: all ones.
    """
    weights, figures = np.ones(len(target)) if weight is None else weight, {}
    for position, output in enumerate(outputs):
        if output.quantile is not None:
            loss = _pinball(target[:, position], prediction[:, position], np.array(output.quantile))
            below = weighted_mean(target[:, position] <= prediction[:, position])(weights)
            figures[output.name] = {"pinball": weighted_mean(loss)(weights), "share below": below}
        else:
            parts = {name: prepare(target[:, position], prediction[:, position]) for name, prepare in named.items()}
            figures[output.name] = {name: part(weights) for name, part in parts.items()}
    return figures


def _mean_of(prepare: Prepare, scales: Array) -> Prepare:
    def several(target: Array, prediction: Array) -> Evaluator:
        parts = _parts(prepare, target, prediction, len(scales))

        def influence(weight: Array, smooth: Sequence[Smooth]) -> Array:
            moved = [part.influence(weight) / scale for part, scale in zip(smooth, scales, strict=True)]
            return np.asarray(np.mean(moved, axis=0))

        return smooth_if_all(parts, lambda weight: float(np.mean([part(weight) for part in parts] / scales)), influence)

    return several


def _parts(prepare: Prepare, target: Array, prediction: Array, num_outputs: int) -> list[Evaluator]:
    return [prepare(target[:, output], prediction[:, output]) for output in range(num_outputs)]


def _pinball(target: Array, prediction: Array, levels: Array) -> Array:
    error = np.asarray(target, dtype=np.float64) - prediction
    return np.maximum(levels * error, (levels - 1) * error)


def _levels(outputs: Sequence[Output]) -> Array:
    return np.array([output.quantile for output in outputs], dtype=np.float64)
