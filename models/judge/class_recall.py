"""How many rows of each class a model finds, and what the goal would be if it found those of one class as others'."""

from __future__ import annotations

import numpy as np

from models.judge.evidence import Evidence
from models.judge.verdict import ClassRecall, Estimate
from models.metrics.classification import predicted_class
from models.metrics.metrics import Array, Metric

MOST_CLASSES = 30
"""Classes that a verdict shows, those with the lowest recall."""


def class_recalls(evidence: Evidence, metric: Metric, confidence: float) -> list[ClassRecall]:
    """Return the recall of each class of the test rows, the lowest first; empty where rows have no one class.

    A class whose test rows all weigh nothing has none.

    Args:
        evidence: With the names of the classes.
        metric: That of the goal; what it would be is only measured for a metric of decisions.
        confidence: Of the intervals.
    """
    if not evidence.class_names:
        return []
    predicted, true = predicted_class(evidence.decided), evidence.target.astype(np.int64)
    hit, weights = predicted == true, np.ones(len(true))
    if evidence.weights is not None and metric.takes_weights:
        weights = evidence.weights
    counted = np.unique(true[weights > 0])
    recalls = [_recall(evidence, index, hit, predicted, weights, confidence) for index in counted.tolist()]
    lowest = sorted(recalls, key=lambda recall: recall.recall.value or 0.0)[:MOST_CLASSES]
    return [_with_goal(recall, evidence, metric, hit) for recall in lowest]


def _recall(
    evidence: Evidence, index: int, hit: Array, predicted: Array, weights: Array, confidence: float
) -> ClassRecall:
    ours = evidence.target == index
    clusters = np.arange(ours.sum()) if evidence.clusters is None else evidence.clusters[ours]
    missed = np.bincount(predicted[ours & ~hit], weights[ours & ~hit])
    others = float(np.average(hit[~ours], weights=weights[~ours])) if weights[~ours].any() else None
    return ClassRecall(
        name=evidence.class_names[index],
        num_samples=int(ours.sum()),
        num_trained=evidence.class_rows[index] if evidence.class_rows else None,
        recall=share(hit[ours], weights[ours], clusters, confidence),
        others=others,
        taken_for=evidence.class_names[int(missed.argmax())] if missed.any() else "",
    )


def share(hit: Array, weights: Array, clusters: Array, confidence: float) -> Estimate:
    """Return the weighted share of hits, with the exact interval of as many independent rows as the clusters are worth.

    Args:
        hit: bool (example,).
        weights: (example,), none below 0 and one at least above it.
        clusters: Numbers (example,); examples of one depend on each other.
        confidence: Of the interval.

    Source: Korn and Graubard (1998), Survey Methodology 24(2): Clopper and Pearson with the effective number of rows.
    """
    from scipy.special import betaincinv, stdtrit

    value = float(np.average(hit, weights=weights))
    units = np.unique(clusters, return_inverse=True)[1]
    sizes, num_rows = np.bincount(units, weights), len(hit)
    moved = np.bincount(units, weights * (hit - value)) / weights.sum()
    degrees, level = int((sizes > 0).sum()) - 1, (1 + confidence) / 2
    effective = float(sizes.sum() ** 2 / np.square(sizes).sum())  # Kish, where no row differs from another
    if degrees > 0 and 0 < value < 1:
        variance = (degrees + 1) / degrees * float(np.square(moved).sum())
        widened = (float(stdtrit(num_rows - 1, level)) / float(stdtrit(degrees, level))) ** 2
        effective = min(float(num_rows), value * (1 - value) / variance * widened)
    hits, misses = value * effective, (1 - value) * effective
    low = float(betaincinv(hits, misses + 1, 1 - level)) if value > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, level)) if value < 1 else 1.0
    return Estimate(value=value, low=low, high=high)


def _with_goal(recall: ClassRecall, evidence: Evidence, metric: Metric, hit: Array) -> ClassRecall:
    """Add what the goal would be if the class were found as often as the others, where it is clearly found less."""
    value, others = recall.recall.value, recall.others
    clearly = recall.recall.high is not None and others is not None and recall.recall.high < others
    if not metric.decides or not clearly or value is None or others is None:
        return recall
    index = list(evidence.class_names).index(recall.name)
    missed = np.flatnonzero((evidence.target == index) & ~hit)
    mended = missed[: round((others - value) / (1 - value) * len(missed))]
    prediction = evidence.models_for(metric)["challenger"].copy()
    prediction[mended] = float(index) if prediction.ndim == 1 else np.eye(prediction.shape[1])[index]
    return recall.model_copy(update={"goal": metric.value(evidence.target, prediction, evidence.weights)})
