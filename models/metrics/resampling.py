"""Metrics prepared for repeated evaluation of one model with different weights each time.

Work that is equal for all resamples (sorting, log-probabilities, predicted classes) is done once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from models.errors import UserCodeError
from models.metrics import classification, language
from models.metrics.metrics import Array, Metric

Evaluator = Callable[[Array], float]
"""Takes weights (example,), float64 whole numbers; returns the metric, NaN where it is undefined."""


def evaluator(metric: Metric, target: Array, prediction: Array) -> Evaluator:
    """Return the metric of one model's predictions as a function of the examples' weights.

    Equals `metric.function(target, prediction, weight)`. A metric of your own that raises on a resample (e.g. one
    with a single class) is undefined on it.
    """
    if metric.own:
        return _own(metric, target, prediction)
    if metric.name in _PER_EXAMPLE:
        values = np.asarray(_PER_EXAMPLE[metric.name](target, prediction), dtype=np.float64)
        return _mean(values, np.sqrt if metric.name == "rmse" else None)
    if metric.name in _RANKING:
        return _ranking(_RANKING[metric.name], target, prediction)
    if metric.name in _PER_CLASS:
        return _confusion(_PER_CLASS.index(metric.name), target, prediction)
    return lambda weight: metric.function(target, prediction, weight)


def _own(metric: Metric, target: Array, prediction: Array) -> Evaluator:
    def value(weight: Array) -> float:
        try:
            return metric.function(target, prediction, weight)
        except UserCodeError:
            return float("nan")

    return value


def _mean(values: Array, after: Callable[[float], float] | None) -> Evaluator:
    def value(weight: Array) -> float:
        mean = float(values @ weight) / weight.sum()
        return float(after(mean)) if after else float(mean)

    return value


def _ranking(score: Callable[[Array, Array], Evaluator], target: Array, prediction: Array) -> Evaluator:
    """Average the score of each class against the rest over the classes for which it is defined."""
    if prediction.ndim == 1:
        return score(np.asarray(target) == 1, prediction)
    parts = [score(np.asarray(target) == each, prediction[:, each]) for each in np.unique(target)]

    def value(weight: Array) -> float:
        values = np.array([part(weight) for part in parts])
        defined = values[~np.isnan(values)]
        return float(defined.mean()) if len(defined) else float("nan")

    return value


def _roc_auc(positive: Array, score: Array) -> Evaluator:
    """Compute the weight of negatives below each positive, from one cumulative sum over the presorted negatives."""
    hits, misses = np.flatnonzero(positive), np.flatnonzero(~positive)
    misses = misses[np.argsort(score[misses], kind="stable")]
    # Sorted as well, so that the look-ups below read memory in order.
    hits = hits[np.argsort(score[hits], kind="stable")]
    under = np.searchsorted(score[misses], score[hits], side="left")
    under_or_tied = np.searchsorted(score[misses], score[hits], side="right")
    ends_with_parent = bool((under != under_or_tied).any())
    below = np.zeros(len(misses) + 1)

    def value(weight: Array) -> float:
        np.cumsum(weight[misses], out=below[1:])
        won = weight[hits]
        pairs = won.sum() * below[-1]
        if not pairs > 0:
            return float("nan")
        beaten = (below[under] + below[under_or_tied]) / 2 if ends_with_parent else below[under]
        return float(won @ beaten / pairs)

    return value


def _pr_auc(positive: Array, score: Array) -> Evaluator:
    """Compute the precision at each positive, from the weight of all examples with an equal or higher score."""
    order = np.argsort(-score, kind="stable")
    places = np.flatnonzero(positive[order])
    hits, ranked = order[places], -score[order]
    # Equal scores are predicted positive together: each is counted at the end of its group.
    called_to = np.searchsorted(ranked, ranked[places], side="right") - 1
    caught_to = np.searchsorted(ranked[places], ranked[places], side="right") - 1

    def value(weight: Array) -> float:
        gained = weight[hits]
        caught = np.cumsum(gained)
        if not (len(caught) and caught[-1] > 0):
            return float("nan")
        called = np.maximum(np.cumsum(weight[order])[called_to], np.finfo(np.float64).tiny)
        return float(gained @ (caught[caught_to] / called) / caught[-1])

    return value


def _confusion(which: int, target: Array, prediction: Array) -> Evaluator:
    size = 2 if prediction.ndim == 1 else prediction.shape[1]
    cell = np.asarray(target, dtype=np.int64) * size + classification.predicted_class(prediction)

    def value(weight: Array) -> float:
        counts = np.bincount(cell, weights=weight, minlength=size * size).reshape(size, size)
        return classification.shares_of(counts, binary=prediction.ndim == 1)[which]

    return value


def _squares(target: Array, prediction: Array) -> Array:
    return (np.asarray(prediction, dtype=np.float64) - target) ** 2


_PER_EXAMPLE: dict[str, Callable[[Array, Array], Array]] = {
    "accuracy": lambda target, prediction: classification.predicted_class(prediction) == target,
    "log_loss": classification.surprise,
    "brier": classification.squared_error,
    "mae": lambda target, prediction: np.abs(np.asarray(prediction, dtype=np.float64) - target),
    "rmse": _squares,
    "bits_per_char": lambda _, prediction: language.window_bits(prediction),
}
_RANKING = {"roc_auc": _roc_auc, "pr_auc": _pr_auc}
_PER_CLASS = ("precision", "recall", "f1")
