"""Metrics of predicted numbers: weighted formulas in numpy.

Legend: target and prediction (example,) in the target's own unit; weight (example,) >= 0 or None (all 1).
An example of weight 0 counts as absent. Every function returns NaN where its value is undefined.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def mae(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean absolute error, in the target's unit."""
    return _mean(np.abs(_error(target, prediction)), weight)


def rmse(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Root of the mean squared error, in the target's unit."""
    return float(np.sqrt(_mean(_error(target, prediction) ** 2, weight)))


def r2(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Share of the target's variance explained, negative when worse than the mean; NaN if constant."""
    truth = np.asarray(target, dtype=np.float64)
    counted = truth if weight is None else truth[np.asarray(weight) > 0]
    if not len(counted) or counted.min() == counted.max():  # a rounded mean gives a spread slightly above 0
        return float("nan")
    spread = _mean((truth - _mean(truth, weight)) ** 2, weight)
    return 1 - _mean(_error(target, prediction) ** 2, weight) / spread if spread > 0 else float("nan")


def mape(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean absolute error as a share of the true value; NaN when a true value is 0."""
    truth = np.abs(np.asarray(target, dtype=np.float64))
    counted = np.ones(len(truth), dtype=bool) if weight is None else np.asarray(weight) > 0
    if (truth[counted] == 0).any():
        return float("nan")
    share = np.divide(np.abs(_error(target, prediction)), truth, out=np.zeros_like(truth), where=counted)
    return _mean(share, weight)


def _error(target: Array, prediction: Array) -> Array:
    return np.asarray(prediction, dtype=np.float64) - np.asarray(target, dtype=np.float64)


def _mean(values: Array, weight: Array | None) -> float:
    if weight is None:
        return float(values.mean()) if len(values) else float("nan")
    total = weight.sum()
    return float(values @ weight / total) if total > 0 else float("nan")
