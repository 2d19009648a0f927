"""Refuses a batch that cannot fit into memory, by the planner's estimate; called in a child process, with torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from models.data.preparation import Preparation
from models.errors import TrainingError
from models.nets.sizes import Sizes
from models.planner.candidates import Candidate
from models.planner.memory import TrainingShape, memory_of
from models.planner.profile import Profiler
from models.project_spec.blocks import Precision
from models.training.costs.spec_memory import examples_of_step
from models.training.job import TrainingJob

# The estimate was at most 13 % more than what a process held (docs/how-to/planner.md).
_CERTAIN = 1.2
# Of estimates for the batch that fits: of a smaller batch more tensors are in the heap, so it is no straight line.
_ROUNDS = 4


def refuse_batch(job: dict[str, Any], memory: float) -> None:
    """Refuse a job of one rank or of replicas on this machine's CPU whose first step would need more than its memory.

    Args:
        job: The training job of a net of the catalogue, as JSON.
        memory: Bytes of the machine, which its ranks share.

    Raises:
        TrainingError: Says how much is needed, and which batch would fit.
    """
    task = TrainingJob.from_json(job)
    preparation, train = Preparation.load(task.prepared), task.train
    batch = examples_of_step(task, preparation)
    precision: Precision = "fp32" if train.precision == "auto" else train.precision
    profiler = Profiler(task.model, Sizes.of(preparation, task.model.net), task.project, precision)
    candidate = replace(Candidate.of(train), data=train.ranks)

    def estimated(size: int) -> tuple[float, float]:
        """Return the bytes that stay, and those that grow with the batch."""
        shape = TrainingShape.of(train.model_copy(update={"batch": size, "precision": precision}), on_cpu=True)
        estimate = memory_of(profiler, candidate, shape, exact=True)
        grows = train.ranks * (estimate.activations + estimate.holes)
        return train.ranks * estimate.total - grows, grows

    stays, grows = estimated(batch)
    if stays + grows <= _CERTAIN * memory:
        return
    fitting = _largest(batch, memory, estimated)
    cure = f"take at most about {fitting:,}" if fitting else "take a smaller net"
    raise TrainingError(
        f"train.batch: {batch:,} examples need {grows / 1e9:,.3g} GB beside {stays / 1e9:,.3g} GB of weights, "
        f"gradients and optimiser state, but this machine's memory is {memory / 1e9:,.3g} GB: {cure}, or raise "
        f"train.accumulate (now {train.accumulate})"
    )


def _largest(batch: int, memory: float, estimated: Callable[[int], tuple[float, float]]) -> int:
    """Return a batch that fits, by few estimates since each takes a trace; 0 if none fits."""
    for _ in range(_ROUNDS):
        stays, grows = estimated(batch)
        if stays + grows <= memory:
            break
        batch = int(batch * max(0.0, memory - stays) / grows)
        if not batch:
            break
    return batch
