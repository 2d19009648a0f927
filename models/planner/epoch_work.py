"""The work of an epoch of a net before it is trained; called in a child process, with torch."""

from __future__ import annotations

import math
from typing import Any

from models.data.preparation import Preparation
from models.nets.build import draft_net, example_inputs
from models.nets.deferred import with_memory
from models.nets.sizes import Sizes
from models.training.costs.flops import count_flops
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
    sizes = Sizes.of(preparation, task.model.net)
    flops = count_flops(with_memory(draft_net(task.model, sizes, task.project).net), example_inputs(sizes))
    examples = task.sample * fitted_rows(task.train.rows, preparation.rows["train"])
    return 0.0 if flops is None else epochs_s(flops * examples, math.ceil(examples / (task.train.batch or examples)))
