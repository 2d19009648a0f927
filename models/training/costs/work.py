"""The work of a training in seconds of a reference core, counted from its sizes and not by the clock.

A search that counts its budget so does the same trials again on any machine, and after a kill. The constants are those
of one core, estimated from the times of a few trials; what the work really took is in the costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from models.training.costs.summary import Costs
from models.training.job import TrainingResult

_START_S = 0.1
_SPLIT_S = 4e-9
_ROUND_S = 1e-3
_FLOP_S = 1e-10
_STEP_S = 8e-4
_FIT_S = 4e-7
_ROUNDS_OF_ONE_FIT = 100.0
"""Rounds that a fit in one go counts as, unless it grows trees: a rule, no measurement, so that it can be repeated."""


def work_s(result: TrainingResult, num_inputs: int) -> float:
    """Return the work of a finished job.

    What learns by rounds: rounds x models x (rows x inputs); what learns in one go: as if by so many rounds; nets:
    floating point operations and steps; linear models: rows x inputs, or what they make of these.

    Args:
        result: The result of the job.
        num_inputs: Input columns of the table.
    """
    rows = float(result.environment.get("train_examples", 0))
    if rounds := result.epochs[-1].get("rounds"):
        parameters = result.environment["parameters"]
        models = int(result.environment.get("models", parameters.get("num_class", 1)))
        counted = rounds if rounds > 1 else _rounds_of_one_fit(parameters, rows)
        return _START_S + counted * (models * (_ROUND_S + rows * num_inputs * _SPLIT_S))
    steps = float(result.environment.get("steps_per_epoch", 0)) * len(result.epochs)
    flops = (result.costs or Costs()).flops or 0.0
    num_features = int(result.environment.get("num_features", num_inputs))
    return _START_S + (epochs_s(flops, steps) if steps else rows * num_features * _FIT_S)


def _rounds_of_one_fit(parameters: Mapping[str, Any], rows: float) -> float:
    """Return rounds for an estimator that is fitted in one go; the trees of a forest are grown down to their leaves."""
    num_trees = parameters.get("n_estimators")
    return num_trees * math.log2(2 + rows) if isinstance(num_trees, int) else _ROUNDS_OF_ONE_FIT


def epochs_s(flops: float, steps: float) -> float:
    """Return the work of epochs with so many floating point operations and steps in all."""
    return steps * _STEP_S + net_s(flops)


def net_s(flops: float) -> float:
    """Return the work of a net's floating point operations."""
    return flops * _FLOP_S
