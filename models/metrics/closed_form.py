"""The uncertainty of metrics on many independent examples without resamples.

It is DeLong's for ROC AUC, and the delta method's for means, shares and roots. By the central limit theorem the metrics
of several models vary as a normal distribution, whose covariance is that of their influences (`Smooth`), paired by
example. Its values stand in the place of resampled ones, so every interval and every test reads both alike. Neither
scipy, statsmodels nor scikit-learn has DeLong's covariance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.metrics.evaluator import Array, Evaluator, Smooth

LEAST_ROWS = 20_000
"""Fewest independent examples. Below, 1,000 resamples of two models take less than a CPU-second, and show skewness."""
LEAST_ROWS_OF_PART = 1_000
"""The same for a slice, whose test needs the standard error alone."""
LEAST_UNITS = 200
"""Fewest examples that each term of a bounded metric rests on, such as the rarer class of an ROC AUC."""


def normal_values(evaluators: Sequence[Evaluator], weight: Array, num: int) -> Array | None:
    """Return values of the metrics, one for each model, as many resamples would give them, shape (num, model).

    They are quasi-random: mean and covariance are exactly those of the closed form. The same arguments give the same
    values.

    Args:
        evaluators: Of the same examples.
        weight: Of the examples (example,).
        num: Number of values.

    Returns:
        None if a metric has no closed form, or is undefined on these examples.

    Cost: about that of two evaluations of each metric.
    """
    smooth = [evaluator for evaluator in evaluators if isinstance(evaluator, Smooth)]
    if len(smooth) < len(evaluators):
        return None
    influences = np.stack([evaluator.influence(weight) for evaluator in smooth], axis=1)
    if not np.isfinite(influences).all():
        return None
    num_examples = len(influences)
    # By QR, equal models get equal values to the last bits, which a root of the covariance would not give.
    root = np.linalg.qr(influences - influences.mean(axis=0), mode="r") / np.sqrt(num_examples * (num_examples - 1))
    values: Array = np.array([evaluator(weight) for evaluator in smooth]) + _normal_points(num, len(smooth)) @ root
    return values


def _normal_points(num: int, dimensions: int) -> Array:
    """Return points (num, dimension) of the standard normal distribution with mean 0 and covariance 1."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=False)
    sequence.fast_forward(1)  # the first point is 0, whose quantile is not finite
    points = ndtri(sequence.random(num))
    points -= points.mean(axis=0)
    spread = np.linalg.cholesky(np.atleast_2d(np.cov(points.T)))
    return np.asarray(np.linalg.solve(spread, points.T).T)
