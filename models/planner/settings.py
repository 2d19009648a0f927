"""Reads the planner's settings from a spec's `train` block."""

from __future__ import annotations

from models.planner.candidates import Candidate
from models.planner.memory import TrainingShape
from models.project_spec.blocks import Train
from models.training.optimisation.optimisers import state_ratio


def training_of(train: Train, on_cpu: bool) -> TrainingShape:
    """Return the batch, the precision and the optimiser settings of the spec."""
    return TrainingShape(
        batch=train.batch,
        precision=train.precision,
        state_ratio=state_ratio(train),
        shard_optimiser=train.shard_optimiser,
        on_cpu=on_cpu,
    )


def base_candidate(train: Train) -> Candidate:
    """Return the settings that every plan takes from the spec."""
    return Candidate(
        parallel="ddp",
        accumulate=train.accumulate,
        microbatches=train.microbatches or 1,
        pipeline=train.pipeline,
        recompute=train.recompute,
    )
