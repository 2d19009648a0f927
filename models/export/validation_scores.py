"""The scores of finished jobs on the same validation examples, for the comparison of families in a search."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from models.data.preparation import Preparation
from models.errors import LooplineError
from models.export.trained import num_validation_examples, validation_predictions
from models.judge.baseline import trivial_baseline
from models.metrics.metrics import Metric, metric_of
from models.project_spec.references import call
from models.training.batches.examples import open_examples
from models.training.job import TrainingJob

BLOCKS = 20


def validation_scores(jobs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the metric of each job's model, also without each of `BLOCKS` blocks of examples, and of a constant.

    Blocks are consecutive, so that examples of the same time are left out together; of a ranking they are of groups.
    Arguments and result are plain data for a child process.

    Args:
        jobs: Finished jobs on the same data, by family, as JSON.

    Returns:
        `scores` (by family: `value`, `without`) and `constant`, NaN where the metric is not defined.
    """
    finished = {name: TrainingJob.model_validate_json(json.dumps(job)) for name, job in jobs.items()}
    any_job = next(iter(finished.values()))
    preparation = Preparation.load(any_job.prepared)
    metric = metric_of(any_job, preparation, any_job.project)
    train, validation = open_examples(any_job.model_copy(update={"fold": None, "sample": 1.0}), preparation)
    target = validation.values()
    at = np.arange(num_validation_examples(any_job))
    groups = metric.units(target)
    units = at if groups is None else groups
    left_out = np.array_split(np.unique(units), min(BLOCKS, len(np.unique(units))))
    blocks = [np.flatnonzero(np.isin(units, block)) for block in left_out]
    scores = {}
    for name, job in finished.items():
        predicted = validation_predictions(job, preparation, at)
        without = [
            _value(metric, np.delete(target, block, axis=0), np.delete(predicted, block, axis=0)) for block in blocks
        ]
        scores[name] = {"value": _value(metric, target, predicted), "without": without}
    num_classes = len(preparation.target.classes or ())
    constant = trivial_baseline(preparation.task, train.values(), len(at), num_classes, outputs=preparation.outputs)
    return {"scores": scores, "constant": _value(metric, target, constant.prediction)}


def _value(metric: Metric, target: np.ndarray, predicted: np.ndarray) -> float:
    """Return the metric; NaN where it is not defined, such as on a single class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(call(metric.value, metric.name, target, predicted))
    except LooplineError:
        return float("nan")
