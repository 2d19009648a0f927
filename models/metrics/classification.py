"""Metrics of predicted classes and probabilities: weighted formulas in numpy.

Legend: target (example,) class indices; binary prediction (example,) probability of class 1; multiclass
prediction (example, class) probabilities; weight (example,) >= 0 or None for all ones. An example of weight 0
counts as absent. Every function returns NaN where its value is undefined: no example, or a single class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CALIBRATION_BINS = 15

_BinaryScore = Callable[[Array, Array, Array], float]


def predicted_class(prediction: Array) -> Array:
    """Return the class (example,) with the highest probability; a tie goes to the lower index."""
    if prediction.ndim == 1:
        return (prediction > 0.5).astype(np.int64)
    return np.asarray(prediction.argmax(axis=1))


def weights_of(target: Array, weight: Array | None) -> Array:
    """Return `weight` as float64, or ones for None."""
    return np.ones(len(target)) if weight is None else np.asarray(weight, dtype=np.float64)


def accuracy(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Share of the weight on correctly classified examples."""
    return _mean(predicted_class(prediction) == target, weights_of(target, weight))


def confusion(target: Array, prediction: Array, weight: Array | None = None) -> Array:
    """Weight of each (true class, predicted class) pair; shape (class, class)."""
    size = 2 if prediction.ndim == 1 else prediction.shape[1]
    cell = np.asarray(target, dtype=np.int64) * size + predicted_class(prediction)
    counts = np.bincount(cell, weights=weights_of(target, weight), minlength=size * size)
    return np.asarray(counts.reshape(size, size), dtype=np.float64)


def precision(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Share of the examples predicted positive that are positive; 0 when there is none. Macro mean over classes."""
    return shares_of(confusion(target, prediction, weight), binary=prediction.ndim == 1)[0]


def recall(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Share of the positive examples that are predicted positive; 0 when there is none. Macro mean over classes."""
    return shares_of(confusion(target, prediction, weight), binary=prediction.ndim == 1)[1]


def f1(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Harmonic mean of precision and recall, 0 when both are. Macro mean over classes."""
    return shares_of(confusion(target, prediction, weight), binary=prediction.ndim == 1)[2]


def shares_of(counts: Array, binary: bool) -> tuple[float, float, float]:
    """Return precision, recall and F1 of a confusion matrix (true class, predicted class).

    Binary: of class 1; else the mean over the classes that occur as truth or prediction. 0 / 0 counts as 0.
    """
    hits, called, true = np.diag(counts), counts.sum(axis=0), counts.sum(axis=1)
    chosen = np.arange(len(hits)) == 1 if binary else called + true > 0
    if not counts.sum() > 0:
        return float("nan"), float("nan"), float("nan")
    shares = _ratio(hits, called), _ratio(hits, true), _ratio(2 * hits, called + true)
    return float(shares[0][chosen].mean()), float(shares[1][chosen].mean()), float(shares[2][chosen].mean())


def roc_auc(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Probability that a positive example scores over a negative one, ties counting half; NaN with one class only.

    Multiclass: each class against the rest, mean over the classes that occur in the target.

    Source: Hanley and McNeil (1982), Radiology 143; Mann-Whitney U with mid-ranks.

    Cost: n log n.
    """
    return _one_against_rest(_binary_roc_auc, target, prediction, weights_of(target, weight))


def pr_auc(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Average precision: the sum over thresholds of (gain in recall) x precision; NaN without a positive.

    Multiclass: each class against the rest, mean over the classes that occur in the target.

    Source: Manning, Raghavan and Schuetze (2008), Introduction to Information Retrieval, 8.4.
    Cost: n log n.
    """
    return _one_against_rest(_binary_pr_auc, target, prediction, weights_of(target, weight))


def log_loss(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean negative log-probability of the true class, in nats."""
    return _mean(surprise(target, prediction), weights_of(target, weight))


def surprise(target: Array, prediction: Array) -> Array:
    """Negative log-probability (example,) of the true class, finite by the dtype's epsilon."""
    if prediction.ndim == 1:
        chance = np.where(np.asarray(target) == 1, prediction, 1 - prediction)
    else:
        chance = np.take_along_axis(prediction, np.asarray(target, dtype=np.int64)[:, None], axis=1)[:, 0]
    epsilon = np.finfo(prediction.dtype).eps if prediction.dtype.kind == "f" else np.finfo(np.float64).eps
    return np.asarray(-np.log(np.clip(chance.astype(np.float64), epsilon, 1.0)))


def brier(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean squared error of the probabilities; multiclass: summed over the classes, so between 0 and 2.

    Source: Brier (1950), Monthly Weather Review 78.
    """
    return _mean(squared_error(target, prediction), weights_of(target, weight))


def squared_error(target: Array, prediction: Array) -> Array:
    """Squared error (example,) of the probabilities, summed over the classes of a multiclass prediction."""
    if prediction.ndim == 1:
        return np.asarray((prediction - target) ** 2)
    truth = np.asarray(target)[:, None] == np.arange(prediction.shape[1])
    return np.asarray(((prediction - truth) ** 2).sum(axis=1))


def ece(target: Array, prediction: Array, weight: Array | None = None) -> float:
    """Expected calibration error over 15 bins of equal width: mean gap between predicted and observed probability.

    Binary: of the positive class; multiclass: of the top class.

    Source: Naeini et al. (2015), AAAI; the 15 bins of Guo et al. (2017), ICML.
    """
    stated, observed, total = reliability(target, prediction, weight)
    filled = total > 0
    return _mean(np.abs(stated[filled] - observed[filled]), total[filled])


def reliability(
    target: Array, prediction: Array, weight: Array | None = None, bins: int = CALIBRATION_BINS
) -> tuple[Array, Array, Array]:
    """Return mean predicted probability, observed frequency and weight of each equal-width bin; NaN in empty bins."""
    if prediction.ndim == 1:
        stated, came_true = prediction, np.asarray(target) == 1
    else:
        stated, came_true = prediction.max(axis=1), predicted_class(prediction) == target
    w = weights_of(target, weight)
    place = np.clip((np.asarray(stated, dtype=np.float64) * bins).astype(np.int64), 0, bins - 1)
    total = np.bincount(place, weights=w, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_stated = np.bincount(place, weights=w * stated, minlength=bins) / total
        frequency = np.bincount(place, weights=w * came_true, minlength=bins) / total
    return mean_stated, frequency, total


def _mean(values: Array, weight: Array) -> float:
    total = weight.sum()
    return float(np.asarray(values, dtype=np.float64) @ weight / total) if total > 0 else float("nan")


def _ratio(part: Array, whole: Array) -> Array:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _one_against_rest(score: _BinaryScore, target: Array, prediction: Array, weight: Array) -> float:
    if prediction.ndim == 1:
        return score(np.asarray(target) == 1, prediction, weight)
    present = np.unique(np.asarray(target, dtype=np.int64)[weight > 0])
    values = [score(np.asarray(target) == each, prediction[:, each], weight) for each in present]
    return float(np.mean(values)) if values else float("nan")


def _by_threshold(positive: Array, score: Array, weight: Array) -> tuple[Array, Array]:
    """Return the weight of positives and of negatives at each distinct score, lowest score first."""
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, dtype=np.int64)
    w = weight[order]
    hits = np.where(positive[order], w, 0.0)
    if not len(starts):
        return np.zeros(0), np.zeros(0)
    return np.add.reduceat(hits, starts), np.add.reduceat(w - hits, starts)


def _binary_roc_auc(positive: Array, score: Array, weight: Array) -> float:
    hits, misses = _by_threshold(positive, score, weight)
    pairs = hits.sum() * misses.sum()
    return float(hits @ (np.cumsum(misses) - misses / 2) / pairs) if pairs > 0 else float("nan")


def _binary_pr_auc(positive: Array, score: Array, weight: Array) -> float:
    hits, misses = (part[::-1] for part in _by_threshold(positive, score, weight))
    if not hits.sum() > 0:
        return float("nan")
    caught = np.cumsum(hits)
    return float(hits @ _ratio(caught, caught + np.cumsum(misses)) / hits.sum())
