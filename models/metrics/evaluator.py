"""Evaluators: metrics of one model that are prepared for repeated evaluation with different weights each time.

Work that is equal for all resamples (sorting, log-probabilities, predicted classes) is done once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Evaluator = Callable[[Array], float]
"""Takes weights (example,), float64 >= 0; returns the metric, NaN where it is undefined."""


def weighted_mean(values: Array) -> Evaluator:
    """Return the evaluator of a mean over examples, NaN without any weight.

    Args:
        values: One value for each example (example,).
    """
    numbers = np.asarray(values, dtype=np.float64)

    def mean(weight: Array) -> float:
        total = weight.sum()
        # `numbers @ weight` would have other last bits on another number of threads, because BLAS divides it.
        return float(np.einsum("i,i->", numbers, weight) / total) if total > 0 else float("nan")

    return mean


def effective_number(weight: Array) -> float:
    """Return how many examples of equal weight are as informative as these; 0 without any weight.

    Source: Kish (1965), Survey Sampling, 8.2: (sum w)^2 / (sum w^2).
    """
    weights = np.asarray(weight, dtype=np.float64)
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
