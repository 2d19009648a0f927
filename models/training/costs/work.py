"""The work of a training in seconds of a reference core, counted from its sizes and not by the clock.

A search that counts its budget so does the same trials again on any machine, and after a kill. The constants are those
of one core, estimated from the times of a few trials; what the work really took is in the costs.
"""

from __future__ import annotations

from models.training.costs.summary import Costs
from models.training.job import TrainingResult

_START_S = 0.1
_SPLIT_S = 4e-9
_ROUND_S = 1e-3
_FLOP_S = 1e-10
_STEP_S = 8e-4
_FIT_S = 4e-7


def work_s(result: TrainingResult, num_inputs: int) -> float:
    """Return the work of a finished job.

    What learns by rounds: rounds x (rows x inputs); nets: floating point operations and steps; the linear net: rows
    x inputs.

    Args:
        result: The result of the job.
        num_inputs: Input columns of the table.
    """
    rows = float(result.environment.get("train_examples", 0))
    if rounds := result.epochs[-1].get("rounds"):
        models = int(result.environment["parameters"].get("num_class", 1))
        return _START_S + rounds * (models * (_ROUND_S + rows * num_inputs * _SPLIT_S))
    steps = float(result.environment.get("steps_per_epoch", 0)) * len(result.epochs)
    flops = (result.costs or Costs()).flops or 0.0
    return _START_S + (epochs_s(flops, steps) if steps else rows * num_inputs * _FIT_S)


def epochs_s(flops: float, steps: float) -> float:
    """Return the work of epochs with so many floating point operations and steps in all."""
    return steps * _STEP_S + net_s(flops)


def net_s(flops: float) -> float:
    """Return the work of a net's floating point operations."""
    return flops * _FLOP_S
