"""The task of a target, whether it is learnt as its logarithm, and rows whose class cannot be learnt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.outputs import infer_task_of_several
from models.data.preparation import SPLITS
from models.data.target_forms import FORMS
from models.errors import DataError
from models.inputs.types import as_float64, as_text, is_number, is_text
from models.kinds.task import TASKS, Task
from models.metrics.metrics import is_of_numbers
from models.project_spec.blocks import Data
from models.project_spec.goal import Goal

MAX_INTEGER_CLASSES = 20
MOST_SKEWNESS, LEAST_ROWS = 1.0, 30
"""A target that is more skewed is tried on the log scale, if there are enough rows to say so.

A rule of thumb: where the logarithm pays was not measured.
"""
MOST_STRAYS = 0.1
"""Of the rows of the rarer class of two: so few rows of a third one are slips, and more are another task."""
MOST_LOST = 0.5
"""Of the rows of a split that have a class which cannot be learnt: then the classes are no classes."""
SHOWN = 5
_OF_QUANTILES = (None, "mae", "mape", "pinball")


def infer_task(targets: pa.Table, data: Data, metric: str | None = None) -> Task:
    """Return the task of the target columns, from their training rows.

    `data.task` takes precedence. Otherwise text and booleans are classes; integers are classes when there are at most
    20 different values (floats: exactly two, both whole); all other numbers are a regression, and all numbers where the
    goal's metric is only for numbers. Two classes are binary. Several targets: see `models.data.outputs`.

    Args:
        targets: The target columns of the training rows.
        data: The spec's `data` block.
        metric: The spec's `goal.metric`.

    Raises:
        DataError: The target's type fits no task, or not the declared one.
    """
    if len(data.targets) > 1:
        return infer_task_of_several(targets, data)
    name, column = data.target_name, targets.column(data.targets[0])
    kind = column.type
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"data.target {name!r}: got type {kind}, expected numbers, text or booleans: convert it")
    task = "quantile" if data.quantiles else data.task
    if task is not None:
        if TASKS[task].is_number and not is_number(kind):
            raise DataError(f"data.task: {task}, but the target {name!r} is {kind}, expected numbers")
        return task
    if data.kind == "series" or (is_number(kind) and is_of_numbers(metric)) or _is_continuous(column):
        return "regression"
    return "binary" if len(scratch.first_values(column, 2)) == 2 else "multiclass"


def certain_task(first: pa.ChunkedArray | None, data: Data) -> Task | None:
    """Return the task that the spec names, or that the first values of its target decide whatever the others are."""
    if data.quantiles:
        return "quantile"
    if data.task is not None or len(data.targets) > 1 or first is None or data.targets[0] in data.decimal_commas:
        return data.task
    values = first.drop_null()
    if pa.types.is_null(values.type) or not len(values):
        return None
    if is_number(values.type):
        return "regression" if pc.count_distinct(values).as_py() > 2 and _is_continuous(values) else None
    return infer_task(pa.table({data.targets[0]: values}), data)


def is_on_log_scale(table: pa.Table, training: pa.Table, data: Data, task: Task, metric: str | None) -> bool:
    """Return whether the net learns the logarithm of a regression's one target, or of the quantiles of a series.

    `auto` takes the logarithm if all values are positive, the training rows are skewed to the right, the logarithm
    is at most half as skewed, and the goal is met by a median or a quantile, which are the same on both scales.

    Args:
        table: All rows.
        training: The target columns of the training rows.
        data: The spec's `data` block.
        task: The task of the targets.
        metric: The spec's `goal.metric`.

    Raises:
        DataError: The spec asks for the logarithm, but a value is negative.
    """
    if data.kind not in FORMS[task].log_scale or len(data.targets) > 1:
        return False
    (name,) = data.targets
    lowest = float(np.nanmin(as_float64(table.column(name), name), initial=np.inf))
    if data.target_scale == "log" and lowest < 0:
        raise DataError(f"data.target_scale: log, but {name!r} has values down to {lowest:g}: say linear")
    if data.target_scale != "auto":
        return data.target_scale == "log"
    if data.kind == "series" or metric not in _OF_QUANTILES or lowest <= 0:
        return False
    values = as_float64(training.column(name), name)
    values = scratch.chosen(values, ~np.isnan(values))
    if len(values) < LEAST_ROWS:
        return False
    skewness = _skewness(values)
    return skewness > MOST_SKEWNESS and abs(_skewness(scratch.computed(np.log, values))) < skewness / 2


def _skewness(values: np.ndarray) -> float:
    """Return the third standardised moment; 0 for a constant, and for values too large to have a spread."""
    with np.errstate(over="ignore"):
        mean = values.mean()
        centred = scratch.computed(lambda part: part - mean, values)
        spread = scratch.deviation(centred)
        if not 0 < spread < np.inf:
            return 0.0
        return float(scratch.computed(lambda part: (part / spread) ** 3, centred).mean())


def without_a_class(targets: pa.Table, codes: np.ndarray, data: Data, goal: Goal) -> dict[str, np.ndarray]:
    """Return which rows have a class that a model cannot learn, bool (rows,) by reason: one late value stops no loop.

    No training row has the class of a validation or test row; or the spec is about two classes (`data.task: binary`,
    `goal.positive`) and a third one is so rare that it is a slip: its rows are at most `MOST_STRAYS` of those of the
    rarer of the two commonest.

    Args:
        targets: The target columns of all rows, none of them missing.
        codes: The split of each row (rows,).
        data: The spec's `data` block.
        goal: The spec's `goal` block.

    Raises:
        DataError: The target's type fits no task, or most rows of validation or test have such a class.
    """
    train = codes == 0
    if not TASKS[infer_task(scratch.chosen_rows(targets, train), data, goal.metric)].has_classes:
        return {}
    is_of_two = data.task is not None and TASKS[data.task].has_positive
    of_two = f"data.task: {data.task}" if is_of_two else "goal.positive" if goal.positive is not None else ""
    texts = as_text(targets.column(data.targets[0]))
    counts = pc.value_counts(scratch.chosen_values(texts, train))
    ordered = sorted(zip(counts.field("counts").to_pylist(), counts.field("values").to_pylist(), strict=True))[::-1]
    learnt, fault = [text for _, text in ordered], "that no training row has"
    if of_two and 0 < sum(count for count, _ in ordered[2:]) <= MOST_STRAYS * ordered[1][0]:
        learnt, fault = learnt[:2], f"beside the two of {of_two}"
    is_lost = pc.invert(pc.is_in(texts, pa.array(learnt, texts.type))).to_numpy(zero_copy_only=False)
    if not is_lost.any():
        return {}
    lost = sorted(pc.unique(texts.filter(pa.array(is_lost))).to_pylist())
    reason = f"of a class {fault} ({', '.join(map(repr, lost[:SHOWN]))}{', ...' * (len(lost) > SHOWN)})"
    for code, split in enumerate(SPLITS):
        num_lost, num_rows = int(is_lost[codes == code].sum()), int((codes == code).sum())
        if num_lost > MOST_LOST * num_rows:
            raise DataError(
                f"data.target {data.target_name!r}: {num_lost:,} of {num_rows:,} {split} rows are {reason}, expected "
                f"at most {MOST_LOST:.0%}: is it an id or free text? Name another target, or join classes in the source"
            )
    return {reason: is_lost}


def _is_continuous(column: pa.ChunkedArray) -> bool:
    if not is_number(column.type):
        return False
    values = scratch.first_values(column, MAX_INTEGER_CLASSES + 1).drop_null()  # one of them may be null
    if pa.types.is_integer(column.type):
        return len(values) > MAX_INTEGER_CLASSES
    return len(values) != 2 or not pc.all(pc.equal(values, pc.round(values.cast(pa.float64())))).as_py()
