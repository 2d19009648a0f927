"""Trivial baselines, which every model must beat; they use the training targets alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from models.errors import DataError
from models.kinds.task import PerTask, Task
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
    target: Array,
    num_classes: int = 2,
    metric: str = "",
    outputs: Sequence[Output] = (),
    weight: Array | None = None,
) -> Baseline:
    """Return the same prediction for every example: the classes' shares, or the constant that is best for the metric.

    Of several outputs: that of each, or the quantiles of the training targets. Of a text: the bits of each character by
    its share in the training text.

    Args:
        task: Decides the form of the predictions. Of a ranking all scores are equal.
        train_target: Class indices, or numbers in the target's own unit (example,); of several outputs (example,
            output); the characters of a text (character,).
        target: True values of the test examples (example, ...): there are as many predictions. Only the baseline of a
            text looks at them, since its predictions are the bits of the true characters.
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
    return BASELINES[task](_Training(train_target, target, num_classes, metric, outputs, weight))


class _Training(NamedTuple):
    """What a baseline is made of; see `trivial_baseline`."""

    values: Array
    target: Array
    num_classes: int
    metric: str
    outputs: Sequence[Output]
    weight: Array | None

    @property
    def num_examples(self) -> int:
        """Number of test examples."""
        return len(self.target)

    def shares(self) -> Array:
        """Return the share of each class (class,)."""
        counts = np.bincount(np.asarray(self.values, dtype=np.int64), self.weight, minlength=self.num_classes)
        return np.asarray(counts / counts.sum())


def _share_of_positive_class(training: _Training) -> Baseline:
    share = training.shares()[1:]
    constant = np.full(training.num_examples, share[0])
    return Baseline("share of the positive class", constant, best_threshold(training.metric, share))


def _shares_of_classes(training: _Training) -> Baseline:
    return Baseline("shares of the classes", np.tile(training.shares(), (training.num_examples, 1)))


def _shares_of_labels(training: _Training) -> Baseline:
    shares = np.average(training.values, 0, training.weight)
    decision = best_decision(training.metric, "multilabel", shares[None])
    return Baseline("share of each label", np.tile(shares, (training.num_examples, 1)), decision)


def _constants(training: _Training) -> Baseline:
    columns = np.asarray(training.values, dtype=np.float64).reshape(len(training.values), -1)
    best = (_best_constant(column, training.metric, training.weight) for column in columns.T)
    names, constants = zip(*best, strict=True)
    forecast = np.tile(constants, (training.num_examples, 1))
    form = (training.num_examples, *np.shape(training.values)[1:])
    return Baseline(f"{names[0]} of the training targets", forecast.reshape(form))


def _quantiles(training: _Training) -> Baseline:
    pairs = zip(np.asarray(training.values).T, training.outputs, strict=True)
    best = [float(sample_quantiles(column, output.quantile or 0.5, training.weight)[0]) for column, output in pairs]
    return Baseline("quantiles of the training targets", np.tile(best, (training.num_examples, 1)))


def _shares_of_characters(training: _Training) -> Baseline:
    bits = unigram_bits(np.ravel(training.values), training.target)
    return Baseline("characters by their shares in the training text", bits)


def _random_order(training: _Training) -> Baseline:
    return Baseline("a random order", np.zeros(training.num_examples))


BASELINES: PerTask[Callable[[_Training], Baseline]] = {
    "binary": _share_of_positive_class,
    "multiclass": _shares_of_classes,
    "multilabel": _shares_of_labels,
    "regression": _constants,
    "quantile": _quantiles,
    "language": _shares_of_characters,
    "ranking": _random_order,
}


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
    last_known = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))))[rows - lag]
    prediction = np.where(last_known < rows - steps[rows], middle, values[last_known])
    return Baseline(f"the value {lag} step{'s' if lag > 1 else ''} earlier", prediction)
