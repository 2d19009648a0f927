"""Calibration of a classifier's probabilities, and the decision threshold that serves a goal.

Legend: prediction (example,) probability of class 1, or (example, class) probabilities; logits are their logarithms,
up to a constant for each example; weight (example,) float64 >= 0, or None for all ones: weight 2 is the example twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from models.folds import Units, rows_apart
from models.metrics import classification
from models.metrics.evaluator import Array, effective_number, weighted_mean
from models.metrics.metrics import Metric, costs_of

FOLDS = 5
LEAST_EXAMPLES = 100
"""With fewer, no calibration is tried: it would be fitted on too little."""
OFFSET_EXAMPLES = 20
"""Examples a class for an offset of each class; with fewer only the slope is fitted."""
MOST_EXAMPLES = 20_000
ONE_SIDED_95 = 1.645
RANKINGS = frozenset({"roc_auc", "pr_auc"})
"""Goals that the order of the examples decides alone."""
_SMALLEST = 1e-12
_TINY = float(np.finfo(np.float64).tiny)
"""Stands for a probability of zero, whose logarithm is not finite."""
_EQUAL = 1e-5
"""Relative difference of equal predictions: a net's float32 pass gives equal rows of two batches 1e-7 apart."""


class PlattScaling(NamedTuple):
    """New logits are `slope * logits + offsets`; offsets (class,), the first is 0.

    Source: Platt (1999), for many classes bias-corrected temperature scaling: Alexandari et al. (2020), ICML.
    """

    slope: float
    offsets: tuple[float, ...]

    def apply(self, prediction: Array) -> Array:
        """Return the calibrated probabilities, in the form of `prediction`."""
        from scipy.special import softmax  # a training begins without it

        chances = softmax(self.slope * logits_of(prediction) + np.array(self.offsets), axis=1)
        return np.asarray(chances[:, 1] if prediction.ndim == 1 else chances)

    def undo(self, chance: float) -> float:
        """Return the probability of class 1 of two that is calibrated to this one."""
        logits = logits_of(np.array([chance]))[0]
        logit = (logits[1] - logits[0] - self.offsets[1]) / self.slope
        return float(1 / (1 + np.exp(-logit)))


class CalibrationTest(NamedTuple):
    """The result of the test on held-out folds.

    Attributes:
        calibration: The calibration fitted on all examples; None if it does not help.
        log_loss: Mean log loss as predicted.
        log_loss_after: Mean log loss on the held-out folds, calibrated on the others.
        ece: Expected calibration error as predicted.
        ece_after: The same on the held-out folds.
    """

    calibration: PlattScaling | None
    log_loss: float
    log_loss_after: float
    ece: float
    ece_after: float


def logits_of(prediction: Array) -> Array:
    """Return logits (example, class) of probabilities; of class 1 alone, within the digits that 1 less it keeps."""
    if prediction.ndim > 1:
        return np.asarray(np.log(np.maximum(prediction, _TINY)))
    return np.asarray(np.log(np.clip(np.stack([1 - prediction, prediction], axis=1), _SMALLEST, 1.0)))


def fit_calibration(target: Array, prediction: Array, weight: Array | None = None) -> PlattScaling:
    """Return the calibration with the least log loss, slightly drawn to none by a ridge penalty.

    Args:
        target: Class indices (example,).
        prediction: Probabilities.
        weight: Of the examples.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    logits, truth = logits_of(prediction), np.asarray(target, dtype=np.int64)
    num, num_classes = logits.shape
    weights = np.ones(num) if weight is None else weight
    one_hot = truth[:, None] == np.arange(num_classes)
    with_offsets = effective_number(weights) >= OFFSET_EXAMPLES * num_classes

    def loss(parameters: Array) -> tuple[float, Array]:
        slope, offsets = math.exp(parameters[0]), np.r_[0.0, parameters[1:]] if with_offsets else 0.0
        chances = softmax(slope * logits + offsets, axis=1)
        losses = -np.log(np.maximum(chances[np.arange(num), truth], _TINY))
        value = (losses * weights).sum() + 0.5 * parameters @ parameters
        error = (chances - one_hot) * weights[:, None]
        slopes = np.r_[slope * (error * logits).sum(), error.sum(axis=0)[1:] if with_offsets else []]
        return float(value), slopes + parameters

    start = np.zeros(num_classes if with_offsets else 1)
    solution = minimize(loss, start, jac=True, method="L-BFGS-B").x
    offsets = solution[1:] if with_offsets else np.zeros(num_classes - 1)
    return PlattScaling(float(math.exp(solution[0])), (0.0, *map(float, offsets)))


def calibration_that_helps(
    target: Array, prediction: Array, seed: int = 0, weight: Array | None = None, units: Units | None = None
) -> CalibrationTest | None:
    """Fit a calibration and test on held-out folds whether it lowers the log loss; None with too few examples.

    It is kept if the mean gain of the held-out examples is above 0 by a one-sided test at 5 %. Simulated
    (tests/unit/models/metrics/test_calibration.py): calibrated predictions are changed in at most 5 % of cases.

    Args:
        target: Class indices (example,).
        prediction: Probabilities.
        seed: Of the division into folds.
        weight: Of the examples. The standard error counts examples, not weights.
        units: Of independence: no fold divides one, and the standard error counts them. None: each example is one.
    """
    truth, stated = np.asarray(target, dtype=np.int64), np.asarray(prediction, dtype=np.float64)
    weights = np.ones(len(truth)) if weight is None else np.asarray(weight, dtype=np.float64)
    if effective_number(weights) < LEAST_EXAMPLES:
        return None
    stride = -(-len(truth) // MOST_EXAMPLES)
    truth, stated, weights = truth[::stride], stated[::stride], weights[::stride]
    units = rows_apart(len(truth)) if units is None else Units(units.of_rows[::stride], units.in_order)
    fold = units.folds(FOLDS, seed)
    after = stated.copy()
    for fold_out in np.unique(fold):
        fitted = fit_calibration(truth[fold != fold_out], stated[fold != fold_out], weights[fold != fold_out])
        after[fold == fold_out] = fitted.apply(stated[fold == fold_out])
    helps = _is_above_zero(_losses(truth, stated) - _losses(truth, after), weights, units.of_rows)
    return CalibrationTest(
        calibration=fit_calibration(truth, stated, weights) if helps else None,
        log_loss=weighted_mean(_losses(truth, stated))(weights),
        log_loss_after=weighted_mean(_losses(truth, after))(weights),
        ece=classification.ece(truth, stated)(weights),
        ece_after=classification.ece(truth, after)(weights),
    )


def _is_above_zero(gain: Array, weight: Array, units: Array) -> bool:
    """Return whether the weighted mean of gains (example,) is above 0 by a one-sided test at 5 %, with units sampled.

    Source: the linearised variance of a ratio of sums over clusters: Cochran (1977), Sampling Techniques, 6.3.
    """
    mean, unit = weighted_mean(gain)(weight), np.unique(units, return_inverse=True)[1]
    parts = np.bincount(unit, weight * (gain - mean))
    num = len(parts)
    if num < 2:
        return False
    return mean > ONE_SIDED_95 * math.sqrt(num / (num - 1) * float(parts @ parts)) / float(weight.sum())


def has_own_threshold(metric: Metric) -> bool:
    """Return whether another decision threshold than 0.5 is best for the metric."""
    return metric.name in ("f1", "balanced_accuracy") or costs_of(metric.name) is not None


def best_threshold(goal: str, prediction: Array, weight: Array | None = None) -> float:
    """Return the threshold for class 1 that is best for the goal if the probabilities are calibrated; 0.5 for most.

    A goal of ranking names no decision, and at 0.5 a rare class may never be predicted, however good the ranking. Its
    threshold makes as many examples positive as the probabilities expect, so precision equals recall in expectation.

    The labels are not used: on 200 to 4,000 examples, thresholds that are chosen by labels lose 2 to 10 times as much
    of the goal (docs/decisions/0030).

    Args:
        goal: The name of the goal's metric.
        prediction: Calibrated probability of class 1 (example,).
        weight: Of the examples.

    Source: costs: Elkan (2001), IJCAI; f1: the best of all cuts by expected counts, Lewis (1995), SIGIR; balanced
    accuracy: the share of the positives.
    """
    costs = costs_of(goal)
    if costs is not None:
        return costs[0] / (costs[0] + costs[1])
    weights = np.ones(len(prediction)) if weight is None else np.asarray(weight, dtype=np.float64)
    counted = weights > 0
    chances, weights = np.asarray(prediction, dtype=np.float64)[counted], weights[counted]
    if goal == "balanced_accuracy" and len(chances):
        return weighted_mean(chances)(weights)
    if (goal not in RANKINGS and goal != "f1") or not len(chances):
        return 0.5
    order = np.argsort(-chances, kind="stable")
    ordered, called = chances[order], np.cumsum(weights[order])
    hits = np.cumsum(ordered * weights[order])
    if goal in RANKINGS:
        return _break_even(ordered, called, float(hits[-1]))
    expected = 2 * hits / (called + hits[-1])
    counts = np.append(_cuts(ordered), len(ordered))
    count = int(counts[np.argmax(expected[counts - 1])])
    return _between(ordered, count)


def _break_even(ordered: Array, called: Array, positives: float) -> float:
    """Return the threshold above which as many examples lie as are positive by the probabilities; 0.5 if all tie."""
    counts = _cuts(ordered)
    if not len(counts):
        return 0.5
    return _between(ordered, int(counts[np.argmin(np.abs(called[counts - 1] - positives))]))


def _cuts(ordered: Array) -> np.ndarray:
    """Return each number of examples that a threshold can divide from the others: not within a tie.

    Else equal rows got different labels: up to 29 % of the rows of a net on four distinct rows, served one by one.
    """
    return np.flatnonzero(-np.diff(ordered) > _EQUAL * ordered[:-1]) + 1


def _between(ordered: Array, count: int) -> float:
    below = ordered[count] if count < len(ordered) else 0.0
    return float((ordered[count - 1] + below) / 2)


def _losses(target: Array, prediction: Array) -> Array:
    logits = logits_of(prediction)
    return np.minimum(-logits[np.arange(len(target)), target], -math.log(_SMALLEST))
