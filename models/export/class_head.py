"""The class head of an export: calibrated probabilities and the decision, chosen on validation rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from models.data.preparation import ClassHead, Preparation
from models.export.trained import HeldOutExamples, held_out_examples, predictions_of
from models.kinds.task import PerTask
from models.metrics.calibration import MOST_EXAMPLES, calibration_that_helps
from models.metrics.decisions import best_decision, label_thresholds
from models.metrics.metrics import metric_of
from models.training.job import TrainingJob


def choose_class_head(job: TrainingJob, preparation: Preparation) -> tuple[Preparation, dict[str, Any]]:
    """Return the preparation with its class head, and the facts for the record and the card.

    The probabilities of classes are calibrated if that is shown to lower the log loss of held-out validation rows. The
    decision is the best for the goal by the calibrated probabilities; labels stay uncalibrated, and have thresholds for
    that. All count each row by its weight. Of a refitted model all is chosen with the first fit, of a bag on all rows
    with the models of the other folds. Other tasks stay as they are.

    Cost: a pass over these rows, at most `MOST_EXAMPLES`.
    """
    return CLASS_HEADS[preparation.task](job, preparation)


class _Judged(NamedTuple):
    """The examples that a head is chosen on with the model's raw outputs, and the name of the goal's metric."""

    examples: HeldOutExamples
    goal: str


def _judged(job: TrainingJob, preparation: Preparation) -> _Judged:
    examples = held_out_examples(job, preparation, MOST_EXAMPLES)
    return _Judged(examples, metric_of(job, preparation, job.project).name)


def _of_labels(job: TrainingJob, preparation: Preparation) -> tuple[Preparation, dict[str, Any]]:
    examples, goal = _judged(job, preparation)
    prediction = predictions_of(examples.outputs, preparation)
    thresholds = label_thresholds(goal, examples.target, prediction, examples.weight)
    head = ClassHead() if np.all(thresholds == 0.5) else ClassHead.of(thresholds)
    return preparation.model_copy(update={"class_head": head}), {"class_head": {"decision": _facts(head)}}


def _of_classes(job: TrainingJob, preparation: Preparation) -> tuple[Preparation, dict[str, Any]]:
    (outputs, target, weight, units), goal = _judged(job, preparation)
    tested = calibration_that_helps(target, _probabilities(outputs), job.train.seed, weight, units)
    calibration = tested.calibration if tested else None
    scale = {"slope": calibration.slope, "offsets": list(calibration.offsets)} if calibration else {}
    calibrated = preparation.model_copy(update={"class_head": ClassHead().model_copy(update=scale)})
    decision = best_decision(goal, preparation.task, predictions_of(outputs, calibrated), weight)
    head = ClassHead.of(decision).model_copy(update=scale)
    names = ("log_loss", "log_loss_after", "ece", "ece_after")
    facts = {} if tested is None else {name: getattr(tested, name) for name in names}
    record = {**facts, "calibrated": calibration is not None, "threshold": head.threshold, "decision": _facts(head)}
    return preparation.model_copy(update={"class_head": head}), {"class_head": record}


def _of_numbers(job: TrainingJob, preparation: Preparation) -> tuple[Preparation, dict[str, Any]]:
    del job
    return preparation, {}


CLASS_HEADS: PerTask[Callable[[TrainingJob, Preparation], tuple[Preparation, dict[str, Any]]]] = {
    "binary": _of_classes,
    "multiclass": _of_classes,
    "multilabel": _of_labels,
    "regression": _of_numbers,
    "quantile": _of_numbers,
    "language": _of_numbers,
    "ranking": _of_numbers,
}


def _facts(head: ClassHead) -> dict[str, list[float]]:
    """Return the decision of labels or of more than two classes; empty if the likeliest class decides, or 0.5."""
    names = ("thresholds", "score_weights", "score_offsets")
    return {name: values for name in names if (values := getattr(head, name))}


def _probabilities(outputs: np.ndarray) -> np.ndarray:
    """Return the probabilities (example, class) of logits (example, class), or of those of class 1 of two."""
    from scipy.special import softmax  # a training begins without it

    logits = np.hstack([np.zeros_like(outputs), outputs]) if outputs.shape[1] == 1 else outputs
    return np.asarray(softmax(logits, axis=1))
