"""Evaluators: metrics of one model that are prepared for repeated evaluation with different weights each time.

Work that is equal for all resamples (sorting, log-probabilities, predicted classes) is done once. An evaluator that is
`Smooth` also says how far each example moves it, from which its standard error follows without resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Evaluator = Callable[[Array], float]
"""Takes weights (example,), float64 >= 0; returns the metric, NaN where it is undefined."""


@dataclass(frozen=True)
class Smooth:
    """An evaluator with a closed form of its uncertainty.

    Attributes:
        value: The metric of weights (example,).
        influence: Returns of weights (example,) the number of examples x the derivative of the metric by how often each
            is drawn (example,); its mean is 0. NaN where the metric is undefined.

    Source: Hampel (1974), Journal of the American Statistical Association 69: the influence curve; its variance over
    the examples, divided by their number, is that of the metric.
    """

    value: Evaluator
    influence: Callable[[Array], Array]

    def __call__(self, weight: Array) -> float:
        """Return the metric of weights (example,)."""
        return self.value(weight)


def mean_of_defined(parts: Sequence[Evaluator]) -> Evaluator:
    """Return the mean of those metrics that are defined; NaN if none is."""

    def value(weight: Array) -> float:
        values = np.array([part(weight) for part in parts])
        defined = values[~np.isnan(values)]
        return float(defined.mean()) if len(defined) else float("nan")

    def influence(weight: Array, smooth: Sequence[Smooth]) -> Array:
        defined = [part.influence(weight) for part in smooth if not np.isnan(part(weight))]
        return np.mean(defined, axis=0) if defined else np.full(len(weight), np.nan)

    return smooth_if_all(parts, value, influence)


def smooth_if_all(
    parts: Sequence[Evaluator], value: Evaluator, influence: Callable[[Array, Sequence[Smooth]], Array]
) -> Evaluator:
    """Return a metric of several, which has a closed form if each of them has."""
    smooth = [part for part in parts if isinstance(part, Smooth)]
    return Smooth(value, lambda weight: influence(weight, smooth)) if len(smooth) == len(parts) else value


def ratio_influence(part: Array, whole: Array, weight: Array) -> Array:
    """Return the influence (example,) of sum(weight x part) / sum(weight x whole); 0 where the whole is 0."""
    total = np.einsum("i,i->", whole, weight)
    if not total > 0:
        return np.zeros(len(weight))
    share = np.einsum("i,i->", part, weight) / total
    return np.asarray(weight * (part - share * whole) * (len(weight) / total))


def weighted_mean(values: Array) -> Smooth:
    """Return the evaluator of a mean over examples, NaN without any weight.

    Args:
        values: One value for each example (example,).
    """
    numbers = np.asarray(values, dtype=np.float64)

    def mean(weight: Array) -> float:
        total = weight.sum()
        # `numbers @ weight` would have other last bits on another number of threads, because BLAS divides it.
        return float(np.einsum("i,i->", numbers, weight) / total) if total > 0 else float("nan")

    return Smooth(mean, lambda weight: ratio_influence(numbers, np.ones(len(numbers)), weight))


def effective_number(weight: Array) -> float:
    """Return how many examples of equal weight are as informative as these; 0 without any weight.

    Source: Kish (1965), Survey Sampling, 8.2: (sum w)^2 / (sum w^2).
    """
    weights = np.asarray(weight, dtype=np.float64)
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0
