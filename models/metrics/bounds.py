"""Metrics with a best and a worst value, and their exact intervals where resamples never vary.

A model without an error has no error in any resample, so the bootstrap's interval of its metric has no width, however
few the examples. What n independent examples without an exception do show is the interval of Clopper and Pearson.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.metrics.classification import predicted_class
from models.metrics.evaluator import Array, effective_number
from models.metrics.limits import LIMITS

Terms = Callable[[Array, Array], list[Array]]
"""Takes target and prediction; returns the examples that each term of the metric is a mean over, bool (example,)."""
SAME = 1e-12
"""Resamples that differ by no more (relative) never vary: sums in another order differ in the last bits."""


@dataclass(frozen=True)
class Range:
    """The lowest and the highest value of a metric, and what each of its terms rests on."""

    low: float
    high: float
    terms: Terms

    def interval(self, value: float, num_units: float, confidence: float) -> tuple[float, float]:
        """Return the exact interval of a metric that never varies over resamples of `num_units` independent units."""
        reach = exact_reach(num_units, confidence) * (self.high - self.low)
        return max(self.low, value - reach), min(self.high, value + reach)


def exact_reach(num_units: float, confidence: float) -> float:
    """Return the largest share of exceptions that fits n independent units without any; 1 without units.

    The terms of a metric fit it too: if it is less than L, a term is, and no exception among the n units of that term
    has a probability of at most L^n.

    Source: Clopper and Pearson (1934), Biometrika 26(4), at no exception.
    """
    return 1 - ((1 - confidence) / 2) ** (1 / num_units) if num_units > 0 else 1.0


def never_vary(resampled: Array) -> bool:
    """Return whether all defined values of a metric on resamples are the same."""
    defined = resampled[np.isfinite(resampled)]
    return len(defined) > 0 and float(np.ptp(defined)) <= SAME * max(1.0, float(np.abs(defined).max()))


def varies(prediction: Array) -> bool:
    """Return whether a model tells examples apart; what a constant is worth by itself is not estimated."""
    return len(prediction) > 0 and bool((prediction != prediction[0]).any())


def least_units(terms: Sequence[Array], clusters: Array | None, weights: Array | None) -> float:
    """Return the effective number of independent units of the term that rests on the fewest.

    Args:
        terms: The examples of each term, bool (example,).
        clusters: Cluster numbers (example,) from 0 on; None: each example is a unit.
        weights: Weights (example,); None for all ones.
    """
    numbers = [
        effective_number(_sizes(np.ones(int(term.sum())) if weights is None else weights[term], term, clusters))
        for term in terms
        if term.any()
    ]
    return min(numbers, default=0.0)


def _sizes(weights: Array, term: Array, clusters: Array | None) -> Array:
    sizes = weights if clusters is None else np.bincount(clusters[term], weights)
    return np.asarray(sizes[sizes > 0])


def all_examples(target: Array, prediction: Array) -> list[Array]:
    """The one term is a mean over all examples."""
    del prediction
    return [np.ones(len(target), dtype=bool)]


def each_class(target: Array, prediction: Array) -> list[Array]:
    """A term for each true class, also of two: a rank or a recall needs examples of every one."""
    del prediction
    return [column == class_index for column in _columns(target) for class_index in np.unique(column)]


def true_class(target: Array, prediction: Array) -> list[Array]:
    """A term for each class that is judged: its true examples."""
    return _of_judged(target, prediction, lambda true, called: true)


def called_class(target: Array, prediction: Array) -> list[Array]:
    """A term for each class that is judged: the examples predicted to be of it."""
    return _of_judged(target, prediction, lambda true, called: called)


def true_or_called_class(target: Array, prediction: Array) -> list[Array]:
    """A term for each class that is judged: its true examples, and those predicted to be of it."""
    return _of_judged(target, prediction, np.logical_or)


def with_any_label(target: Array, prediction: Array) -> list[Array]:
    """The one term is a mean over the examples with a true or a predicted label."""
    labelled: Array = (target > 0.5) | (prediction > 0.5)
    return [np.asarray(labelled.any(axis=1))]


def _columns(target: Array) -> list[Array]:
    return list(target.T) if target.ndim > 1 else [target]


def _of_judged(target: Array, prediction: Array, part: Callable[[Array, Array], Array]) -> list[Array]:
    """Return a part of the examples for each class: of two classes class 1, of labels each label, else every class."""
    if prediction.ndim == target.ndim:
        pairs = zip(_columns(target), _columns(prediction), strict=True)
        return [part(true > 0.5, called > 0.5) for true, called in pairs]
    called = predicted_class(prediction)
    return [part(target == class_index, called == class_index) for class_index in np.union1d(target, called)]


_TERMS: dict[str, Terms] = {
    "roc_auc": each_class,
    "pr_auc": each_class,
    "balanced_accuracy": each_class,
    "precision": called_class,
    "recall": true_class,
    "f1": true_or_called_class,
    "f1_micro": with_any_label,
}
RANGES = {name: Range(low, high, _TERMS.get(name, all_examples)) for name, (low, high) in LIMITS.items()}
"""The metrics with a lowest and a highest value, by name."""
