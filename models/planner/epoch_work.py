"""The work of an epoch of a net before it is trained; called in a child process, with torch."""

from __future__ import annotations

import math
from typing import Any

from models.data.preparation import Preparation
from models.nets.sizes import Sizes
from models.planner.profile import Profiler
from models.training.costs.table_memory import fitted_rows
from models.training.costs.work import epochs_s
from models.training.job import TrainingJob


def epoch_s(job: dict[str, Any]) -> float:
    """Return the work of an epoch of a job's net in seconds of a reference core; 0 if its operations are not known.

    Args:
        job: The training job, as JSON.
    """
    task = TrainingJob.from_json(job)
    preparation = Preparation.load(task.prepared)
    flops = Profiler(task.model, Sizes.of(preparation, task.model.net), task.project, "fp32").flops()
    examples = task.sample * fitted_rows(task.train.rows, preparation.rows["train"])
    return 0.0 if flops is None else epochs_s(flops * examples, math.ceil(examples / (task.train.batch or examples)))
