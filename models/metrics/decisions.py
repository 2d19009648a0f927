"""How calibrated probabilities become classes and labels, so that the goal is met best.

Legend: prediction (example,) probability of class 1, (example, class) or (example, label) probabilities; weight
(example,) float64 >= 0, or None for all ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from models.kinds.task import PerTask, Task
from models.metrics.calibration import best_threshold, fit_calibration, has_own_threshold
from models.metrics.classification import ClassScores, Decision
from models.metrics.evaluator import Array
from models.metrics.metrics import Metric

MOST_TURNS = 30
"""Turns of the search for the scores that are best for the macro f1; it settles within a few."""
_TINY = float(np.finfo(np.float64).tiny)


def has_own_decision(metric: Metric, task: Task) -> bool:
    """Return whether another decision than the likeliest class, or labels above 0.5, is best for the metric."""
    return DECISIONS[task].is_own(metric)


def best_decision(goal: str, task: Task, prediction: Array, weight: Array | None = None) -> Decision:
    """Return the decision that is best for the goal if the probabilities are calibrated; the likeliest for most goals.

    Labels have a threshold each, found as that of two classes (`best_threshold`); one for all for `f1_micro`. Of more
    than two classes see `class_scores`. The labels of the examples are not used, as for a threshold.

    Args:
        goal: The name of the goal's metric.
        task: Of the data; tasks without classes and labels have nothing to decide.
        prediction: Calibrated probabilities.
        weight: Of the examples.
    """
    return DECISIONS[task].best(goal, prediction, weight)


def label_thresholds(goal: str, target: Array, prediction: Array, weight: Array | None = None) -> Array:
    """Return the threshold of each label (label,) for probabilities that need not be calibrated.

    They are those of calibrated probabilities, put back on the scale of the given ones, which order the rows alike.

    Args:
        goal: The name of the goal's metric.
        target: 0 or 1 (example, label).
        prediction: Probabilities (example, label).
        weight: Of the examples.
    """
    pairs = zip(np.asarray(target).T, prediction.T, strict=True)
    scalings = [fit_calibration(true > 0.5, column, weight) for true, column in pairs]
    calibrated = [scaling.apply(column) for scaling, column in zip(scalings, prediction.T, strict=True)]
    thresholds = best_decision(goal, "multilabel", np.stack(calibrated, axis=1), weight)
    if np.all(thresholds == 0.5):
        return np.full(len(scalings), 0.5)
    return np.array(
        [scaling.undo(threshold) for scaling, threshold in zip(scalings, np.asarray(thresholds), strict=True)]
    )


def class_scores(goal: str, prediction: Array, weight: Array | None = None) -> ClassScores | None:
    """Return the scores whose highest decides for a class; None where the likeliest class is the best.

    For balanced accuracy and macro recall a probability counts by its class's share. For macro f1 the expected f1 of a
    class k rises by `(2 p_k - f1_k) / (called_k + true_k)` if an example is called k, so these are the scores, with the
    figures of the decisions so far, of which each turn moves a part; of all turns the best by the expected f1 counts.

    Source: balanced accuracy: Menon et al. (2013), ICML; f1 by the conditional gradient method: Narasimhan et al.
    (2015), ICML.
    Cost: `MOST_TURNS` passes over (example, class).
    """
    weights = np.ones(len(prediction)) if weight is None else np.asarray(weight, dtype=np.float64)
    size, true, num_classes = weights.sum(), weights @ prediction, prediction.shape[1]
    if goal in ("balanced_accuracy", "recall"):
        return ClassScores(size / np.maximum(true * num_classes, _TINY), np.zeros(num_classes))
    if goal != "f1" or not size > 0:
        return None
    best, highest, scores = None, -1.0, ClassScores(np.ones(num_classes), np.zeros(num_classes))
    hits = called = np.zeros(num_classes)
    for turn in range(MOST_TURNS):
        decided = scores.apply(prediction).argmax(axis=1)
        new_called = np.bincount(decided, weights, num_classes)
        new_hits = np.bincount(decided, weights * prediction[np.arange(len(decided)), decided], num_classes)
        reached = float(np.mean(2 * new_hits / np.maximum(new_called + true, _TINY)))
        if reached > highest:
            best, highest = scores, reached
        step = 2 / (turn + 2)
        hits, called = hits + step * (new_hits - hits), called + step * (new_called - called)
        total = np.maximum(called + true, _TINY)
        scores = ClassScores(2 * size / total, -2 * size * hits / total**2)
    return best


def _best_of_classes(goal: str, prediction: Array, weight: Array | None) -> Decision:
    return class_scores(goal, prediction, weight) or 0.5


def _best_of_labels(goal: str, prediction: Array, weight: Array | None) -> Decision:
    if goal == "f1_micro":
        num_labels = prediction.shape[1]
        together = None if weight is None else np.repeat(weight, num_labels)
        return np.full(num_labels, best_threshold("f1", prediction.ravel(), together))
    return np.array([best_threshold(goal, column, weight) for column in prediction.T])


def _nothing_to_decide(goal: str, prediction: Array, weight: Array | None) -> Decision:
    del goal, prediction, weight
    return 0.5


class Decider(NamedTuple):
    """How a task decides: for which metrics another decision than the usual one is best, and which one that is."""

    is_own: Callable[[Metric], bool]
    best: Callable[[str, Array, Array | None], Decision]


_OF_NUMBERS = Decider(lambda metric: False, _nothing_to_decide)
DECISIONS: PerTask[Decider] = {
    "binary": Decider(has_own_threshold, best_threshold),
    "multiclass": Decider(lambda metric: metric.name in ("f1", "balanced_accuracy", "recall"), _best_of_classes),
    "multilabel": Decider(lambda metric: metric.name in ("f1", "f1_micro"), _best_of_labels),
    "regression": _OF_NUMBERS,
    "quantile": _OF_NUMBERS,
    "language": _OF_NUMBERS,
    "ranking": _OF_NUMBERS,
}
