"""Trivial baselines, which every model must beat; they use the training targets alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.errors import DataError
from models.kinds.task import Task
from models.metrics.calibration import best_threshold
from models.metrics.classification import Decision
from models.metrics.decisions import best_decision
from models.metrics.language import unigram_bits
from models.metrics.metrics import Array, quantile_of
from models.metrics.outputs import Output
from models.metrics.regression import sample_quantiles


class Baseline(NamedTuple):
    """A trivial model: its name in words and its predictions for the test examples, in the form for metrics.

    `threshold`: from which share on it decides for class 1 of two, or for each label, so that its decision is the best
    for the goal.
    """

    name: str
    prediction: Array
    threshold: Decision = 0.5


def trivial_baseline(
    task: Task,
    train_target: Array,
    num_examples: int,
    num_classes: int = 2,
    metric: str = "",
    outputs: Sequence[Output] = (),
    weight: Array | None = None,
) -> Baseline:
    """Return the same prediction for every example: the classes' shares, or the constant that is best for the metric.

    Of several outputs: that of each, or the quantiles of the training targets.

    Args:
        task: Decides the form of the predictions. Of a ranking all scores are equal.
        train_target: Class indices, or numbers in the target's own unit (example,); of several outputs (example,
            output).
        num_examples: Number of test examples.
        num_classes: Number of classes, including those absent from training.
        metric: `mae` is minimised by the median, `mape` by the median with weights 1 / |target|, `pinball` by the
            quantile; the mean is used for all others. Of two classes the threshold follows from it, as that of a model.
        outputs: The outputs, if there are several.
        weight: Of the training rows (example,), float64 >= 0; weight 2 is the row twice. None: all ones.

    Raises:
        DataError: No training target.
    """
    if not len(train_target):
        raise DataError("the training split is empty: a baseline needs at least one target")
    if task == "quantile":
        pairs = zip(np.asarray(train_target).T, outputs, strict=True)
        best = [float(sample_quantiles(column, output.quantile or 0.5, weight)[0]) for column, output in pairs]
        return Baseline("quantiles of the training targets", np.tile(best, (num_examples, 1)))
    if task == "ranking":
        return Baseline("a random order", np.zeros(num_examples))
    if task == "multilabel":
        return _shares_of_labels(train_target, num_examples, metric, weight)
    if task == "regression":
        columns = np.asarray(train_target, dtype=np.float64).reshape(len(train_target), -1)
        names, constants = zip(*(_best_constant(column, metric, weight) for column in columns.T), strict=True)
        forecast = np.tile(constants, (num_examples, 1)) if outputs else np.full(num_examples, constants[0])
        return Baseline(f"{names[0]} of the training targets", forecast)
    counts = np.bincount(np.asarray(train_target, dtype=np.int64), weight, minlength=num_classes)
    shares = counts / counts.sum()
    if task == "binary":
        constant = np.full(num_examples, shares[1])
        return Baseline("share of the positive class", constant, best_threshold(metric, shares[1:]))
    return Baseline("shares of the classes", np.tile(shares, (num_examples, 1)))


def _shares_of_labels(target: Array, num_examples: int, metric: str, weight: Array | None) -> Baseline:
    shares = np.average(target, 0, weight)
    decision = best_decision(metric, "multilabel", shares[None])
    return Baseline("share of each label", np.tile(shares, (num_examples, 1)), decision)


def _best_constant(target: Array, metric: str, weight: Array | None) -> tuple[str, float]:
    quantile = quantile_of(metric)
    if quantile is not None:
        return f"{quantile:g} quantile", float(sample_quantiles(target, quantile, weight)[0])
    if metric == "mae":
        return "median", float(sample_quantiles(target, 0.5, weight)[0])
    if metric == "mape" and target.any():
        order = np.argsort(target, kind="stable")
        order = order[target[order] != 0]
        half = np.cumsum((1.0 if weight is None else weight[order]) / np.abs(target[order]))
        return "weighted median", float(target[order][np.searchsorted(half, half[-1] / 2)])
    return "mean", float(np.average(target, weights=weight))


def unigram(training: Array, target: Array) -> Baseline:
    """Predict each character by its share in the training text: the bits of each of `target` (window, position).

    Raises:
        DataError: No training text.
    """
    if not len(training):
        raise DataError("the training split is empty: a baseline needs at least one character")
    return Baseline("characters by their shares in the training text", unigram_bits(training, target))


def naive_forecast(series: Array, steps: Array, target_rows: Array, lag: int, middle: float = math.nan) -> Baseline:
    """Predict the target's own value `lag` steps earlier, or the last known one before it if that is missing.

    Args:
        series: The target over the steps of all series (step,), in its own unit; NaN where it is missing.
        steps: How many steps of the same series lie directly before each, without a gap (step,).
        target_rows: The step (example,) whose value each example predicts.
        lag: Steps back; at least the horizon, or the forecast would see the future.
        middle: The forecast where no value is known yet.

    Raises:
        DataError: An example lies less than `lag` steps from the start of its series.
    """
    rows = np.asarray(target_rows, dtype=np.int64)
    before = steps[rows] - lag
    if len(rows) and before.min() < 0:
        raise DataError(f"naive forecast: an example has {before.min() + lag} steps before it, expected {lag} or more")
    values = np.asarray(series, dtype=np.float64)
    known = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))[rows - lag]
    prediction = np.where(known < rows - steps[rows], middle, values[known])
    return Baseline(f"the value {lag} step{'s' if lag > 1 else ''} earlier", prediction)
