"""Metrics that a team brings: a function, or a row `METRIC` of a file or a package."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import UsageError, UserCodeError
from models.kinds.task import TASKS, Task
from models.metrics.evaluator import Evaluator
from models.metrics.outputs import Prepare
from models.project_spec import references
from models.project_spec.row_source import (
    RowForm,
    RowKey,
    checked_row,
    is_flag,
    is_function,
    is_row,
    one_of,
    read_row,
    some_of,
)

Array = NDArray[Any]
Drawn = Callable[[Array, Array], tuple[Array, Array]]
"""Of targets and whole-number weights: the positions of the examples that are drawn, and their targets."""

METRIC = RowForm(
    "METRIC",
    {
        "value": RowKey("a function of target, prediction and, with weights, weight", is_function),
        "direction": one_of(("maximize", "minimize")),
        "tasks": some_of(TASKS, [*TASKS]),
        "weights": RowKey("True or False", is_flag, default=False),
    },
)


def read_metric(reference: str, base: Path, task: Task | None, direction: str | None) -> None:
    """Refuse a row that does not fit the goal, before a run; of a plain function only the direction is asked.

    Args:
        reference: `goal.metric`.
        base: The folder of the spec.
        task: The task, as far as it is certain.
        direction: `goal.direction`.

    Raises:
        UsageError: No direction or another one, another task, or a row that is none.
    """
    if is_row(reference, METRIC.name):
        _check_goal(read_row(reference, base, METRIC, "goal.metric"), reference, task, direction)
    elif direction is None:
        raise _no_direction(reference)


def load_metric(reference: str, base: Path, task: Task, direction: str | None) -> dict[str, Any]:
    """Return the row of a metric; a plain function is one for every task that takes no weights.

    Raises:
        UsageError: As of `read_metric`, or the reference names neither a row nor a function.
        UserCodeError: The file raised on import.
    """
    value = references.resolve(reference, base)
    if is_row(reference, METRIC.name):
        row = checked_row(value, METRIC, f"goal.metric: {reference}")
        _check_goal(row, reference, task, direction)
        return row
    if not callable(value):
        raise UsageError(f"goal.metric: {reference} is a {type(value).__name__}, expected a function")
    if direction is None:
        raise _no_direction(reference)
    return {"value": value, "direction": direction, "weights": False}


def own_prepare(row: dict[str, Any], reference: str, drawn: Drawn) -> Prepare:
    """Return what makes the evaluator of a row's metric; without weights, `drawn` repeats the examples."""
    evaluate = _weighted if row["weights"] else partial(_repeated, drawn)

    def prepare(target: Array, prediction: Array) -> Evaluator:
        return partial(evaluate, row["value"], reference, target, prediction)

    return prepare


def _check_goal(row: dict[str, Any], reference: str, task: Task | None, direction: str | None) -> None:
    if task is not None and task not in row["tasks"]:
        raise UsageError(f"goal.metric: {reference} is for {' and '.join(row['tasks'])}, expected one for {task}")
    if direction not in (None, row["direction"]):
        raise UsageError(f"goal.direction: got {direction!r}, but {reference} is to {row['direction']}: leave it out")


def _no_direction(reference: str) -> UsageError:
    return UsageError(f"goal.direction: needed for your own metric {reference}: maximize or minimize")


def _weighted(function: Callable[..., Any], reference: str, target: Array, prediction: Array, weight: Array) -> float:
    return _finite(references.call(function, reference, target, prediction, weight), reference)


def _repeated(
    drawn: Drawn, function: Callable[..., Any], reference: str, target: Array, prediction: Array, weight: Array
) -> float:
    """Return an unweighted metric of weighted examples: whole-number weights repeat them."""
    index, targets = drawn(target, weight)
    return _finite(references.call(function, reference, targets, prediction[index]), reference)


def _finite(result: Any, reference: str) -> float:
    if isinstance(result, (bool, str)) or not np.isscalar(result) or not math.isfinite(_number(result)):
        raise UserCodeError(f"{reference} gave back {result!r}, expected one finite number")
    return _number(result)


def _number(result: Any) -> float:
    try:
        return float(result)
    except (TypeError, ValueError):
        return float("nan")
