"""The scores of finished jobs on the same validation examples, for the comparison of families in a search."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import LooplineError
from models.export.trained import num_validation_examples, validation_outputs
from models.judge.baseline import trivial_baseline
from models.metrics.metrics import METRICS, Metric, metric_of
from models.project_spec.references import call
from models.training.batches.examples import open_examples
from models.training.ensemble import TASKS, combined, selected
from models.training.job import TrainingJob

BLOCKS = 20


def validation_scores(jobs: dict[str, dict[str, Any]], is_joined: bool = False) -> dict[str, Any]:
    """Return the metric of each job's model, also without each of `BLOCKS` blocks of examples, and of a constant.

    Blocks are consecutive, so that examples of the same time are left out together; of a ranking they are of groups.
    Arguments and result are plain data for a child process.

    Args:
        jobs: Finished jobs on the same data, by family, as JSON.
        is_joined: Look for an ensemble of these models too.

    Returns:
        `scores` (by family: `value`, `without`) and `constant`, NaN where the metric is not defined; `weights` of an
        ensemble by family, empty if one model alone is as good or none was looked for, and its `value` as `joined`.
    """
    finished = {name: _job_of(job) for name, job in jobs.items()}
    side = _Validation(next(iter(finished.values())))
    metric, target, at = side.metric, side.target, side.positions
    groups = metric.units(target)
    units = at if groups is None else groups
    left_out = np.array_split(np.unique(units), min(BLOCKS, len(np.unique(units))))
    blocks = [np.flatnonzero(np.isin(units, block)) for block in left_out]
    scores, outputs = {}, {}
    for name, job in finished.items():
        outputs[name] = validation_outputs(job, side.preparation, at)
        predicted = side.predictions(outputs[name])
        without = [
            _value(metric, np.delete(target, block, axis=0), np.delete(predicted, block, axis=0)) for block in blocks
        ]
        scores[name] = {"value": _value(metric, target, predicted), "without": without}
    made = {"scores": scores, "constant": side.constant(), "weights": {}, "joined": float("nan")}
    return {**made, **_joined(outputs, side)} if is_joined else made


def validation_value(job: dict[str, Any]) -> float:
    """Return the metric of a job's model on validation, of first fits where it was refitted; NaN if not defined."""
    side = _Validation(finished := _job_of(job))
    outputs = validation_outputs(finished, side.preparation, side.positions, of_first_fit=True)
    return _value(side.metric, side.target, side.predictions(outputs))


class _Validation:
    """The validation examples of a job, and what judges predictions for them."""

    def __init__(self, job: TrainingJob) -> None:
        self.preparation = Preparation.load(job.prepared)
        self.metric = metric_of(job, self.preparation, job.project)
        self._train, validation = open_examples(job.model_copy(update={"fold": None, "sample": 1.0}), self.preparation)
        self.target = validation.values()
        self.positions = np.arange(num_validation_examples(job))

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Return the input of metrics for raw outputs (example, output)."""
        import torch

        from models.training.optimisation.losses import predictions

        return predictions(torch.from_numpy(outputs), self.preparation)

    def constant(self) -> float:
        """Return the metric of a constant prediction."""
        preparation, count = self.preparation, len(self.positions)
        num_classes = len(preparation.target.classes or ())
        baseline = trivial_baseline(
            preparation.task, self._train.values(), count, num_classes, outputs=preparation.outputs
        )
        return _value(self.metric, self.target, baseline.prediction)

    def loss(self, outputs: np.ndarray) -> float:
        """Return what an ensemble is to make small: the log loss of classes and labels, else the goal's metric."""
        log_loss = METRICS["log_loss"].of(self.preparation.outputs)
        metric = log_loss if self.preparation.task in log_loss.tasks else self.metric
        return -metric.sign * _value(metric, self.target, self.predictions(outputs))


def _joined(outputs: dict[str, np.ndarray], side: _Validation) -> dict[str, Any]:
    if side.preparation.task not in TASKS or len(outputs) < 2:
        return {}
    weights = selected(outputs, side.preparation.task, side.loss)
    if len(weights) < 2:
        return {}
    mean = combined([outputs[name] for name in weights], list(weights.values()), side.preparation.task)
    return {"weights": weights, "joined": _value(side.metric, side.target, side.predictions(mean))}


def _job_of(job: dict[str, Any]) -> TrainingJob:
    return TrainingJob.model_validate_json(json.dumps(job))


def _value(metric: Metric, target: np.ndarray, predicted: np.ndarray) -> float:
    """Return the metric; NaN where it is not defined, such as on a single class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(call(metric.value, metric.name, target, predicted))
    except LooplineError:
        return float("nan")
