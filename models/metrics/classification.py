"""Metrics of predicted classes and probabilities: weighted formulas in numpy.

Legend: target (example,) class indices; binary prediction (example,) probability of class 1; multiclass
prediction (example, class) probabilities. An example of weight 0 counts as absent. Each metric returns an evaluator
(`evaluator.py`), which returns NaN where the metric is undefined: no example, or a single class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from models.metrics.evaluator import Array, Evaluator, Smooth, mean_of_defined, ratio_influence, weighted_mean

CALIBRATION_BINS = 15


def predicted_class(prediction: Array) -> Array:
    """Return the class (example,) with the highest probability; a tie goes to the lower index."""
    if prediction.ndim == 1:
        return (prediction > 0.5).astype(np.int64)
    return np.asarray(prediction.argmax(axis=1))


def accuracy(target: Array, prediction: Array) -> Evaluator:
    """Share of the weight on correctly classified examples."""
    return weighted_mean(predicted_class(prediction) == target)


def confusion(target: Array, prediction: Array) -> Callable[[Array], Array]:
    """Return a function of the weights: the weight of each (true class, predicted class) pair, (class, class)."""
    size = 2 if prediction.ndim == 1 else prediction.shape[1]
    cell = np.asarray(target, dtype=np.int64) * size + predicted_class(prediction)
    return lambda weight: np.bincount(cell, weights=weight, minlength=size * size).reshape(size, size)


def missed_classes(target: Array, prediction: Array) -> Array:
    """Return the classes (class,) that occur in the target but are never predicted."""
    return np.setdiff1d(np.asarray(target, dtype=np.int64), predicted_class(prediction))


def balanced_accuracy(target: Array, prediction: Array) -> Evaluator:
    """Mean over the classes that occur in the target of the share of their examples that is rightly classified."""
    counts = confusion(target, prediction)

    def value(weight: Array) -> float:
        matrix = counts(weight)
        true = matrix.sum(axis=1)
        return float((np.diag(matrix)[true > 0] / true[true > 0]).mean()) if (true > 0).any() else float("nan")

    def influence(weight: Array) -> Array:
        return _mean_influence(target, prediction, _of_true, counts(weight).sum(axis=1) > 0, weight)

    return Smooth(value, influence)


def cost(target: Array, prediction: Array, false_positive: float, false_negative: float) -> Evaluator:
    """Mean cost of the errors of two classes."""
    missed = np.asarray(target, dtype=np.int64) - predicted_class(prediction)
    return weighted_mean(np.where(missed > 0, false_negative, np.where(missed < 0, false_positive, 0.0)))


class ClassScores(NamedTuple):
    """A decision of more than two classes: that of the highest `weights * probability + offsets`, each (class,)."""

    weights: Array
    offsets: Array

    def apply(self, prediction: Array) -> Array:
        """Return the scores (example, class)."""
        return np.asarray(prediction * self.weights + self.offsets)


Decision = float | Array | ClassScores
"""A threshold of class 1 of two, thresholds (label,) of labels, or the scores of more than two classes."""


def at_threshold(prediction: Array, threshold: Decision) -> Array:
    """Return probabilities moved so that 0.5 divides them where `threshold` did, or the highest decides as scores do.

    The order of those with one threshold stays; `threshold` (example,) is that of the model that each is of, of labels
    (example, label), of scores (example, class).
    """
    if isinstance(threshold, ClassScores):
        return threshold.apply(prediction)
    if np.all(threshold == 0.5):
        return prediction
    positive, negative = prediction * (1 - threshold), (1 - prediction) * threshold
    return positive / np.maximum(positive + negative, np.finfo(np.float64).tiny)


def precision(target: Array, prediction: Array) -> Evaluator:
    """Share of the examples predicted positive that are positive; 0 when there is none. Macro mean over classes."""
    return _mean_ratio(target, prediction, lambda hits, called, true: (hits, called))


def recall(target: Array, prediction: Array) -> Evaluator:
    """Share of the positive examples that are predicted positive; 0 when there is none. Macro mean over classes."""
    return _mean_ratio(target, prediction, _of_true)


def f1(target: Array, prediction: Array) -> Evaluator:
    """Harmonic mean of precision and recall, 0 when both are. Macro mean over classes."""
    return _mean_ratio(target, prediction, lambda hits, called, true: (2 * hits, called + true))


def roc_auc(target: Array, prediction: Array) -> Evaluator:
    """Probability that a positive example scores over a negative one, ties counting half; NaN with one class only.

    Multiclass: each class against the rest, mean over the classes that occur in the target.

    Source: Hanley and McNeil (1982), Radiology 143; Mann-Whitney U with mid-ranks.

    Cost: n log n.
    """
    return _one_against_rest(_binary_roc_auc, target, prediction)


def pr_auc(target: Array, prediction: Array) -> Evaluator:
    """Average precision: the sum over thresholds of (gain in recall) x precision; NaN without a positive.

    Multiclass: each class against the rest, mean over the classes that occur in the target.

    Source: Manning, Raghavan and Schuetze (2008), Introduction to Information Retrieval, 8.4.
    Cost: n log n.
    """
    return _one_against_rest(_binary_pr_auc, target, prediction)


def log_loss(target: Array, prediction: Array) -> Evaluator:
    """Mean negative log-probability of the true class, in nats; finite by the dtype's epsilon."""
    if prediction.ndim == 1:
        chance = np.where(np.asarray(target) == 1, prediction, 1 - prediction)
    else:
        chance = np.take_along_axis(prediction, np.asarray(target, dtype=np.int64)[:, None], axis=1)[:, 0]
    epsilon = np.finfo(prediction.dtype).eps if prediction.dtype.kind == "f" else np.finfo(np.float64).eps
    return weighted_mean(-np.log(np.clip(chance.astype(np.float64), epsilon, 1.0)))


def brier(target: Array, prediction: Array) -> Evaluator:
    """Mean squared error of the probabilities; multiclass: summed over the classes, so between 0 and 2.

    Source: Brier (1950), Monthly Weather Review 78.
    """
    if prediction.ndim == 1:
        return weighted_mean((prediction - target) ** 2)
    truth = np.asarray(target)[:, None] == np.arange(prediction.shape[1])
    return weighted_mean(((prediction - truth) ** 2).sum(axis=1))


def ece(target: Array, prediction: Array) -> Evaluator:
    """Expected calibration error over 15 bins of equal width: mean gap between predicted and observed probability.

    Binary: of the positive class; multiclass: of the top class.

    Source: Naeini et al. (2015), AAAI; the 15 bins of Guo et al. (2017), ICML.
    """

    def value(weight: Array) -> float:
        stated, observed, total = reliability(target, prediction, weight)
        filled = total > 0
        return weighted_mean(np.abs(stated[filled] - observed[filled]))(total[filled])

    return value


def reliability(
    target: Array, prediction: Array, weight: Array | None = None, bins: int = CALIBRATION_BINS
) -> tuple[Array, Array, Array]:
    """Return mean predicted probability, observed frequency and weight of each equal-width bin; NaN in empty bins."""
    if prediction.ndim == 1:
        stated, came_true = prediction, np.asarray(target) == 1
    else:
        stated, came_true = prediction.max(axis=1), predicted_class(prediction) == target
    example_weights = np.ones(len(target)) if weight is None else weight
    place = np.clip((np.asarray(stated, dtype=np.float64) * bins).astype(np.int64), 0, bins - 1)
    total = np.bincount(place, weights=example_weights, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_stated = np.bincount(place, weights=example_weights * stated, minlength=bins) / total
        frequency = np.bincount(place, weights=example_weights * came_true, minlength=bins) / total
    return mean_stated, frequency, total


_Parts = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Returns part and whole of a ratio from the true positives, predicted examples and true examples of each class."""


def _of_true(hits: Array, called: Array, true: Array) -> tuple[Array, Array]:
    return hits, true


def _mean_ratio(target: Array, prediction: Array, parts: _Parts) -> Smooth:
    """Average a ratio of each class's true positives, predicted examples and true examples.

    Binary: that of class 1; else the mean over the classes that occur as truth or prediction.
    """
    counts, is_binary = confusion(target, prediction), prediction.ndim == 1

    def chosen(called: Array, true: Array) -> Array:
        return np.arange(len(called)) == 1 if is_binary else called + true > 0

    def value(weight: Array) -> float:
        matrix = counts(weight)
        hits, called, true = np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1)
        ratios = _ratio(*parts(hits, called, true))[chosen(called, true)]
        return float(ratios.mean()) if matrix.sum() > 0 else float("nan")

    def influence(weight: Array) -> Array:
        matrix = counts(weight)
        return _mean_influence(target, prediction, parts, chosen(matrix.sum(axis=0), matrix.sum(axis=1)), weight)

    return Smooth(value, influence)


def _mean_influence(target: Array, prediction: Array, parts: _Parts, chosen: Array, weight: Array) -> Array:
    """Return the influence (example,) of the mean of a ratio over the classes that are chosen, bool (class,)."""
    called_class, influences = predicted_class(prediction), []
    for class_index in np.flatnonzero(chosen):
        called, true = (called_class == class_index).astype(float), (np.asarray(target) == class_index).astype(float)
        influences.append(ratio_influence(*parts(called * true, called, true), weight))
    return np.asarray(np.mean(influences, axis=0))


def _ratio(part: Array, whole: Array) -> Array:
    """Return part / whole; 0 / 0 counts as 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)


def _one_against_rest(score: Callable[[Array, Array], Evaluator], target: Array, prediction: Array) -> Evaluator:
    """Average the score of each class against the rest over the classes for which it is defined."""
    if prediction.ndim == 1:
        return score(np.asarray(target) == 1, prediction)
    return mean_of_defined(
        [score(np.asarray(target) == class_index, prediction[:, class_index]) for class_index in np.unique(target)]
    )


def _binary_roc_auc(positive: Array, score: Array) -> Smooth:
    """Compute the weight of negatives below each positive, from one cumulative sum over the presorted negatives.

    Source of the closed form: DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44; by sorting: Sun and Xu (2014),
    IEEE Signal Processing Letters 21.
    """
    hits, misses = np.flatnonzero(positive), np.flatnonzero(~positive)
    misses = misses[np.argsort(score[misses], kind="stable")]
    # Sorted as well, so that the look-ups below read memory in order.
    hits = hits[np.argsort(score[hits], kind="stable")]
    under = np.searchsorted(score[misses], score[hits], side="left")
    under_or_tied = np.searchsorted(score[misses], score[hits], side="right")
    has_ties = bool((under != under_or_tied).any())
    below = np.zeros(len(misses) + 1)

    def value(weight: Array) -> float:
        np.cumsum(weight[misses], out=below[1:])
        won = weight[hits]
        pairs = won.sum() * below[-1]
        if not pairs > 0:
            return float("nan")
        beaten = (below[under] + below[under_or_tied]) / 2 if has_ties else below[under]
        return float(won @ beaten / pairs)

    def influence(weight: Array) -> Array:
        moved, area = np.full(len(score), np.nan), value(weight)
        caught, missed = weight[hits].sum(), weight[misses].sum()
        if np.isnan(area):
            return moved
        lost, won = np.r_[0.0, np.cumsum(weight[misses])], np.r_[0.0, np.cumsum(weight[hits])]
        beaten = (lost[under] + lost[under_or_tied]) / 2
        over = np.searchsorted(score[hits], score[misses], side="left")
        over_or_tied = np.searchsorted(score[hits], score[misses], side="right")
        beating = caught - (won[over] + won[over_or_tied]) / 2
        moved[hits] = weight[hits] * (beaten / missed - area) * (len(score) / caught)
        moved[misses] = weight[misses] * (beating / caught - area) * (len(score) / missed)
        return moved

    return Smooth(value, influence)


def _binary_pr_auc(positive: Array, score: Array) -> Evaluator:
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
