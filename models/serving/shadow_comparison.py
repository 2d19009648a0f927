"""Comparison of two versions on the same rows: agreement, distance, and the metric of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from models.feedback.label_text import TARGET_DTYPES
from models.judge.verdict import Difference, Number
from models.kinds.task import PerTask
from models.metrics.classification import Decision, at_threshold, predicted_class

if TYPE_CHECKING:
    from models.metrics.metrics import Metric

Array = NDArray[np.float64]
CONFIDENCE = 0.95
RESAMPLES = 500
LEAST_LABELS = 30
SEED = 0


class DecisionThresholds(NamedTuple):
    """How each row was decided by the version that answered it, the rows first; and how the shadow decides."""

    answered: Decision = 0.5
    shadow: Decision = 0.5


class ShadowComparison(BaseModel):
    """A shadow's predictions compared with the live ones. The metric's numbers are None while labels are too few."""

    version: str
    num_rows: int = 0
    agreement: Number = Field(None, description="Share of rows with the same class; None of numbers.")
    distance: Number = Field(
        None, description="Mean absolute difference of the scores; of several numbers each relative to its spread."
    )
    num_labelled: int = 0
    metric: str = ""
    answered: Number = Field(None, description="The metric of what was answered, on rows with a label.")
    shadow: Number = Field(None, description="The metric of the shadow, on the same rows.")
    difference: Difference | None = Field(None, description="Shadow minus answered: paired bootstrap.")
    note: str = Field("", description="What could not be compared, and why.")


def compare(
    version: str,
    metric: Metric,
    answered: Array,
    shadow: Array,
    label: Array,
    thresholds: DecisionThresholds = DecisionThresholds(),  # noqa: B008 - immutable
) -> ShadowComparison:
    """Compare a shadow's predictions with the live ones.

    Args:
        version: The shadow's.
        metric: The project's goal.
        answered: (row,) scores, or (row, class) probabilities, of the live versions.
        shadow: The same of the shadow.
        label: (row,) class index or number, or (row, output); NaN while no label is known. A text needs none: any
            number.
        thresholds: Where the models decide, for agreement and for a metric of decisions.
    """
    comparison = ShadowComparison(version=version, num_rows=len(answered), metric=metric.name)
    if not len(answered):
        return comparison
    form = COMPARISONS[metric.tasks[0]]  # all tasks of a metric have one form of predictions
    decided = at_threshold(answered, thresholds.answered), at_threshold(shadow, thresholds.shadow)
    agreement = form.agreement(*decided, label.ndim > 1)
    labelled = ~np.isnan(label.reshape(len(label), -1)).any(axis=1)
    spread = form.spread(answered, label.ndim > 1)
    distance = np.abs(answered - shadow) / np.where(spread > 0, spread, 1.0)
    measures = {"agreement": agreement, "distance": float(np.mean(distance))}
    if metric.decides:
        answered, shadow = decided
    judged = _judged(metric, answered[labelled], shadow[labelled], label[labelled])
    return comparison.model_copy(update={**measures, **judged, "num_labelled": int(labelled.sum())})


def _judged(metric: Metric, answered: Array, shadow: Array, label: Array) -> dict[str, object]:
    if len(label) < LEAST_LABELS or metric.is_of_groups:  # the log does not say which rows are one group
        return {}
    from models.judge.comparison import Threshold, resample_models

    task = metric.tasks[0]
    target = label.astype(TARGET_DTYPES[task])
    answered, shadow = (COMPARISONS[task].examples(values) for values in (answered, shadow))
    resamples = resample_models(metric, target, {"challenger": shadow, "champion": answered}, RESAMPLES, SEED)
    values = {"answered": resamples.values["champion"], "shadow": resamples.values["challenger"]}
    if any(math.isnan(value) for value in values.values()):
        return {}  # the labels have only one class so far
    return {**values, "difference": resamples.difference("champion", Threshold(0.0, strict=True), CONFIDENCE)}


def _agreement(answered: Array, shadow: Array, several: bool) -> float:
    """Return the share of rows with the same class, or with the same labels."""
    if several:
        return float(np.mean(((answered > 0.5) == (shadow > 0.5)).all(axis=1)))
    return float(np.mean(predicted_class(answered) == predicted_class(shadow)))


def _no_agreement(answered: Array, shadow: Array, several: bool) -> None:
    del answered, shadow, several


def _of_probabilities(answered: Array, several: bool) -> Array:
    del answered, several
    return np.ones(())


def _of_numbers(answered: Array, several: bool) -> Array:
    return np.asarray(np.std(answered, axis=0)) if several else np.ones(())


def _unchanged(values: Array) -> Array:
    return values


def _one_window(values: Array) -> Array:
    """Return texts as one window each, with their mean bits per character."""
    return values[:, None]


class TaskComparison(NamedTuple):
    """How predictions of a task are compared: their agreement, the spread that is their unit, and their examples."""

    agreement: Callable[[Array, Array, bool], float | None]
    spread: Callable[[Array, bool], Array]
    examples: Callable[[Array], Array]


_CLASSES = TaskComparison(_agreement, _of_probabilities, _unchanged)
_NUMBERS = TaskComparison(_no_agreement, _of_numbers, _unchanged)
COMPARISONS: PerTask[TaskComparison] = {
    "binary": _CLASSES,
    "multiclass": _CLASSES,
    "multilabel": _CLASSES,
    "regression": _NUMBERS,
    "quantile": _NUMBERS,
    "language": TaskComparison(_no_agreement, _of_numbers, _one_window),
    "ranking": _NUMBERS,
}
