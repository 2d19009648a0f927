"""What of a spec's `train` block the planner reads."""

from __future__ import annotations

import torch
from torch import nn

from models.planner.candidates import Candidate
from models.planner.memory import Training
from models.project_spec.blocks import Train
from models.training.optimisers import make_optimiser

_WIDTH = 64


def training_of(train: Train, on_cpu: bool) -> Training:
    """Batch, precision and optimiser of the spec."""
    return Training(
        batch=train.batch,
        precision=train.precision,
        state_ratio=state_ratio(train),
        shard_optimiser=train.shard_optimiser,
        on_cpu=on_cpu,
    )


def base_candidate(train: Train) -> Candidate:
    """What every plan takes over from the spec."""
    return Candidate(
        parallel="ddp",
        accumulate=train.accumulate,
        microbatches=train.microbatches or 1,
        pipeline=train.pipeline,
        recompute=train.recompute,
    )


def state_ratio(train: Train) -> float:
    """Bytes of the optimiser's state for each byte of weights, from one step of the spec's optimiser on a layer."""
    layer = nn.Linear(_WIDTH, _WIDTH)
    optimiser = make_optimiser(layer, train)
    layer(torch.ones(1, _WIDTH)).sum().backward()
    optimiser.step()
    held = [value for state in optimiser.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    weights = sum(p.numel() * p.element_size() for p in layer.parameters())
    return sum(value.numel() * value.element_size() for value in held if value.ndim) / weights
