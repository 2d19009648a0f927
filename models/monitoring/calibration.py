"""Calibration of a classification: the predicted probabilities against the observed frequencies on its test rows.

Source: isotonic calibration, Zadrozny and Elkan (2002), KDD; many classes: each against the rest, then scaled to sum
to 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.frozen_model import FrozenModel

Array = NDArray[np.float64]
MOST_KNOTS = 200


class CalibrationCurve(FrozenModel):
    """Predicted probabilities, ascending, and the observed frequency of each; linear in between."""

    stated: list[float]
    observed: list[float]


class Calibration(FrozenModel):
    """One curve for each class; a binary model has one, of its positive class."""

    curves: list[CalibrationCurve] = Field(min_length=1)

    def chances(self, prediction: Array) -> Array:
        """Return the calibrated probability of each class, (example, class); rows sum to 1; two columns for binary."""
        if prediction.ndim == 1:
            positive = _read(self.curves[0], prediction)
            return np.stack([1 - positive, positive], axis=1)
        chances = np.stack([_read(curve, prediction[:, place]) for place, curve in enumerate(self.curves)], axis=1)
        total = chances.sum(axis=1, keepdims=True)
        return np.where(total > 0, chances / np.where(total > 0, total, 1.0), prediction)


def fit_calibration(target: NDArray[np.int64], prediction: Array, weight: Array | None = None) -> Calibration | None:
    """Fit isotonic curves to test predictions; None without any example.

    Args:
        target: Class indices (example,).
        prediction: Probabilities (example,) of class 1, or (example, class).
        weight: Of the examples, float64 >= 0; None: all alike.
    """
    weights = np.ones(len(target)) if weight is None else weight
    counted = weights > 0
    if not counted.any():
        return None
    true, weights = target[counted], weights[counted]
    stated = prediction[counted]
    if stated.ndim == 1:
        return Calibration(curves=[_curve(true == 1, stated, weights)])
    places = range(stated.shape[1])
    return Calibration(curves=[_curve(true == place, stated[:, place], weights) for place in places])


def _curve(came_true: NDArray[np.bool_], stated: Array, weights: Array) -> CalibrationCurve:
    from scipy.optimize import isotonic_regression

    scores, index = np.unique(np.asarray(stated, dtype=np.float64), return_inverse=True)
    counts = np.bincount(index, weights)
    # Equal scores are merged into one point before the fit: else the result would depend on the order of the rows.
    heights = np.asarray(isotonic_regression(np.bincount(index, came_true * weights) / counts, weights=counts).x)
    knots = np.unique(np.linspace(0, len(scores) - 1, MOST_KNOTS).astype(np.int64))
    return CalibrationCurve(stated=scores[knots].tolist(), observed=heights[knots].tolist())


def _read(curve: CalibrationCurve, stated: Array) -> Array:
    return np.interp(stated, curve.stated, curve.observed)
