"""Metrics of predicted numbers: weighted formulas in numpy.

Legend: target and prediction (example,) in the target's own unit. An example of weight 0 counts as absent. Each metric
returns an evaluator (`evaluator.py`), which returns NaN where the metric is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from models.metrics.evaluator import Array, Evaluator, Smooth, weighted_mean


def mae(target: Array, prediction: Array) -> Evaluator:
    """Mean absolute error, in the target's unit."""
    return weighted_mean(np.abs(_error(target, prediction)))


def rmse(target: Array, prediction: Array) -> Evaluator:
    """Root of the mean squared error, in the target's unit."""
    mean = weighted_mean(_error(target, prediction) ** 2)

    def influence(weight: Array) -> Array:
        root = math.sqrt(mean(weight))
        return mean.influence(weight) / (2 * root) if root > 0 else np.zeros(len(weight))

    return Smooth(lambda weight: math.sqrt(mean(weight)), influence)


def r2(target: Array, prediction: Array) -> Evaluator:
    """Share of the target's variance explained, negative when worse than the mean; NaN if constant."""
    truth = np.asarray(target, dtype=np.float64)
    middle, error = weighted_mean(truth), weighted_mean(_error(target, prediction) ** 2)

    def value(weight: Array) -> float:
        counted = truth[weight > 0]
        if not len(counted) or counted.min() == counted.max():  # a rounded mean gives a spread slightly above 0
            return float("nan")
        spread = weighted_mean((truth - middle(weight)) ** 2)(weight)
        return 1 - error(weight) / spread if spread > 0 else float("nan")

    def influence(weight: Array) -> Array:
        spread = weighted_mean((truth - middle(weight)) ** 2)
        unexplained = 1 - value(weight)
        return np.asarray((unexplained * spread.influence(weight) - error.influence(weight)) / spread(weight))

    return Smooth(value, influence)


def mape(target: Array, prediction: Array) -> Evaluator:
    """Mean absolute error as a share of the true value; NaN when a true value is 0."""
    truth = np.abs(np.asarray(target, dtype=np.float64))
    is_zero = truth == 0
    share = np.divide(np.abs(_error(target, prediction)), truth, out=np.zeros_like(truth), where=~is_zero)
    mean = weighted_mean(share)
    return Smooth(lambda weight: float("nan") if weight[is_zero].any() else mean(weight), mean.influence)


def pinball(target: Array, prediction: Array, quantile: float) -> Evaluator:
    """Mean pinball loss, in the target's unit: its best prediction is the quantile.

    Source: Koenker and Bassett (1978), Econometrica 46(1).
    """
    under = -_error(target, prediction)
    return weighted_mean(np.maximum(quantile * under, (quantile - 1) * under))


def sample_quantiles(values: Array, levels: float | Sequence[float], weight: Array | None = None) -> Array:
    """Return the quantiles of a sample (example,) or (example, column), those of a column next to each other.

    A value of weight 2 counts as two values.

    A further value of the same source lies below each with the probability that is its level, so few values give the
    widest interval that there is; numpy's usual quantiles (type 7) are too narrow for few values.
    Source: Vovk, Gammerman and Shafer (2005), Algorithmic Learning in a Random World; Hyndman and Fan (1996), type 6.
    """
    if weight is None:
        return np.atleast_1d(np.quantile(values, levels, axis=0, method="weibull")).T.ravel()
    columns = np.reshape(values, (len(values), -1)).T
    return np.concatenate([_weighted_quantiles(column, np.atleast_1d(levels), weight) for column in columns])


def _weighted_quantiles(values: Array, levels: Array, weight: Array) -> Array:
    """Return the quantiles of values that stand from `place - weight + 1` to `place`, as if each was repeated."""
    order = np.argsort(values, kind="stable")
    order = order[weight[order] > 0]
    counts = np.asarray(weight, dtype=np.float64)[order]
    place = np.cumsum(counts)
    places = np.stack([place - counts + np.minimum(counts, 1.0), place], axis=1).ravel()
    return np.asarray(np.interp((place[-1] + 1) * levels, places, np.repeat(values[order], 2)))


def _error(target: Array, prediction: Array) -> Array:
    return np.asarray(prediction, dtype=np.float64) - np.asarray(target, dtype=np.float64)
