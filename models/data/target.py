"""The task of a target, its classes, and its values as numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.outputs import fit_outputs, infer_task_of_several, middle_and_spread, output_values, with_outputs
from models.data.preparation import SPLITS, TargetEncoding
from models.errors import DataError
from models.inputs.types import as_float64, as_text, dtype_of, is_number, is_text
from models.kinds.task import NUMBER_TASKS, Task
from models.metrics.metrics import is_of_numbers
from models.metrics.ranking import has_order
from models.project_spec.blocks import Data
from models.project_spec.goal import Goal
from models.project_spec.reserved_columns import KEY_COLUMN

MAX_INTEGER_CLASSES = 20
MAX_CLASSES = 1000
MOST_SKEWNESS, LEAST_ROWS = 1.0, 30
"""A target that is more skewed is tried on the log scale, if there are enough rows to say so.

A rule of thumb: where the logarithm pays was not measured.
"""
MOST_STRAYS = 0.1
"""Of the rows of the rarer class of two: so few rows of a third one are slips, and more are another task."""
MOST_LOST = 0.5
"""Of the rows of a split that have a class which cannot be learnt: then the classes are no classes."""
SHOWN = 5
LARGEST_GRADE = 30
"""Of a ranking. Source: LightGBM has gains for grades up to 30 (`label_gain`)."""
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
    if task in NUMBER_TASKS and not is_number(kind):
        raise DataError(f"data.task: {task}, but the target {name!r} is {kind}, expected numbers")
    if task is not None:
        return task
    if data.kind == "series" or (is_number(kind) and is_of_numbers(metric)) or _is_continuous(column):
        return "regression"
    return "binary" if len(pc.unique(column)) == 2 else "multiclass"


def certain_task(first: pa.ChunkedArray | None, data: Data) -> Task | None:
    """Return the task that the spec names, or that the first values of its target decide whatever the others are."""
    if data.quantiles:
        return "quantile"
    if data.task is not None or len(data.targets) > 1 or first is None:
        return data.task
    values = first.drop_null()
    if pa.types.is_null(values.type) or not len(values):
        return None
    if is_number(values.type):
        return "regression" if pc.count_distinct(values).as_py() > 2 and _is_continuous(values) else None
    return infer_task(pa.table({data.targets[0]: values}), data)


def fit_target(
    targets: pa.Table,
    data: Data,
    task: Task,
    is_log: bool = False,
    weights: np.ndarray | None = None,
    positive: str | None = None,
) -> TargetEncoding:
    """Return the classes, or shift and scale, or the table of several outputs, from the training rows.

    Args:
        targets: The target columns of the training rows.
        data: The spec's `data` block.
        task: The task of the targets.
        is_log: The net learns the logarithm of the values.
        weights: Of the training rows (row,), for shift and scale; None: all alike.
        positive: The spec's `goal.positive`; None: the later of two classes.

    Raises:
        DataError: There is only one class, more than two for binary, or more than a thousand; the positive class is
            none of two.
    """
    if positive is not None:
        check_positive(positive, task)
    if data.kind != "series" and (task in ("multilabel", "quantile") or len(data.targets) > 1):
        return fit_outputs(targets, data, task, weights)
    name, column = data.target_name, targets.column(data.targets[0])
    if task == "ranking":
        return TargetEncoding(name=name, group=data.split.column)
    if task in ("regression", "quantile"):
        target = _fit_number(column, name, is_log, weights)
        return with_outputs(target, data.window.horizons, data.quantiles or ()) if data.window else target
    dtype = dtype_of(column.type)
    classes = [text for text in pc.unique(as_text(column)).to_pylist() if text is not None]
    classes.sort(key=float if dtype == "integer" else None)
    _check_classes(classes, name, task, data)
    if positive is not None:
        classes = _with_positive_last(classes, positive, name)
    return TargetEncoding(name=name, classes=classes, dtype=dtype)


def check_positive(positive: str, task: Task) -> None:
    """Refuse a positive class of a task that has not two classes.

    Raises:
        DataError: Names the class and the task.
    """
    if task != "binary":
        raise DataError(
            f"goal.positive: got {positive!r}, but the task is {task}: it names one of two classes, so leave it out"
        )


def _with_positive_last(classes: list[str], positive: str, name: str) -> list[str]:
    if positive not in classes:
        raise DataError(
            f"goal.positive: got {positive!r}, expected one of the classes of {name!r}, "
            f"{' or '.join(map(repr, classes))}"
        )
    return [*(each for each in classes if each != positive), positive]


def _fit_number(column: pa.ChunkedArray, name: str, is_log: bool, weights: np.ndarray | None) -> TargetEncoding:
    values = as_float64(column, name)
    present = ~np.isnan(values)
    values, weights = values[present], None if weights is None else weights[present]
    if not len(values):
        raise DataError(
            f"data.target {name!r} has no value in the training rows: fill it in the source, or take another"
        )
    middle, spread = middle_and_spread(values, name, weights)
    if not is_log:
        return TargetEncoding(name=name, shift=middle, scale=spread)
    offset = 0.0 if values.min() > 0 else float(values[values > 0].min(initial=np.inf))
    shift, scale = middle_and_spread(np.log(values + (offset if np.isfinite(offset) else 1.0)), name, weights)
    return TargetEncoding(
        name=name,
        shift=shift,
        scale=scale,
        log_offset=offset if np.isfinite(offset) else 1.0,
        deviation=spread,
    )


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
    if (task != "regression" and data.kind != "series") or len(data.targets) > 1:
        return False
    (name,) = data.targets
    least = float(np.nanmin(as_float64(table.column(name), name), initial=np.inf))
    if data.target_scale == "log" and least < 0:
        raise DataError(f"data.target_scale: log, but {name!r} has values down to {least:g}: say linear")
    if data.target_scale != "auto":
        return data.target_scale == "log"
    if data.kind == "series" or metric not in _OF_QUANTILES or least <= 0:
        return False
    values = as_float64(training.column(name), name)
    values = values[~np.isnan(values)]
    if len(values) < LEAST_ROWS:
        return False
    skewness = _skewness(values)
    return skewness > MOST_SKEWNESS and abs(_skewness(np.log(values))) < skewness / 2


def _skewness(values: np.ndarray) -> float:
    """Return the third standardised moment; 0 for a constant, and for values too large to have a spread."""
    with np.errstate(over="ignore"):
        centred = values - values.mean()
        spread = float(centred.std())
    return float(((centred / spread) ** 3).mean()) if 0 < spread < np.inf else 0.0


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
    train = pa.array(codes == 0)
    if infer_task(targets.filter(train), data, goal.metric) not in ("binary", "multiclass"):
        return {}
    of_two = "data.task: binary" if data.task == "binary" else "goal.positive" if goal.positive is not None else ""
    texts = as_text(targets.column(data.targets[0]))
    counts = pc.value_counts(texts.filter(train))
    ordered = sorted(zip(counts.field("counts").to_pylist(), counts.field("values").to_pylist(), strict=True))[::-1]
    learnt, what = [text for _, text in ordered], "that no training row has"
    if of_two and 0 < sum(count for count, _ in ordered[2:]) <= MOST_STRAYS * ordered[1][0]:
        learnt, what = learnt[:2], f"beside the two of {of_two}"
    is_lost = pc.invert(pc.is_in(texts, pa.array(learnt, texts.type))).to_numpy(zero_copy_only=False)
    if not is_lost.any():
        return {}
    lost = sorted(pc.unique(texts.filter(pa.array(is_lost))).to_pylist())
    reason = f"of a class {what} ({', '.join(map(repr, lost[:SHOWN]))}{', ...' * (len(lost) > SHOWN)})"
    for code, split in enumerate(SPLITS):
        num_lost, num_rows = int(is_lost[codes == code].sum()), int((codes == code).sum())
        if num_lost > MOST_LOST * num_rows:
            raise DataError(
                f"data.target {data.target_name!r}: {num_lost:,} of {num_rows:,} {split} rows are {reason}, expected "
                f"at most {MOST_LOST:.0%}: is it an id or free text? Name another target, or join classes in the source"
            )
    return {reason: is_lost}


def class_indices(column: pa.ChunkedArray, target: TargetEncoding) -> np.ndarray:
    """Return class texts as int64 indices into the target's classes (rows,).

    Raises:
        DataError: A class is none of the target's.
    """
    indices = pc.index_in(column, pa.array(target.classes, pa.string()))
    if indices.null_count:
        unseen = pc.unique(column.filter(pc.is_null(indices))).to_pylist()[:5]
        raise DataError(
            f"data.target {target.name!r}: got classes {unseen}, expected those of the training rows, "
            f"{(target.classes or [])[:20]}: leave such rows out in the source"
        )
    values: np.ndarray = indices.to_numpy().astype(np.int64)
    return values


def true_values(rows: pa.Table, target: TargetEncoding) -> np.ndarray:
    """Return the true values of prepared rows in the form for metrics.

    int64 class indices (rows,), float64 in the target's own unit (rows,), or of several outputs (rows, output); labels
    are 0 or 1. Of a ranking the grade and the number of the group, float64 (rows, 2).

    Raises:
        DataError: A class does not occur in the training rows.
    """
    if target.outputs:
        return output_values(rows, target)
    column = rows.column(target.name)
    if target.classes:
        return class_indices(column, target)
    values: np.ndarray = column.to_numpy()
    return values if target.group is None else np.stack([values, rows.column(KEY_COLUMN).to_numpy()], axis=1)


def check_grades(grades: np.ndarray, name: str) -> None:
    """Refuse a target that holds other values than grades.

    Args:
        grades: The target, float64 (row,).
        name: Its column.

    Raises:
        DataError: A value is no whole number from 0 to `LARGEST_GRADE`; names the first.
    """
    strange = np.flatnonzero((grades != np.round(grades)) | (grades < 0) | (grades > LARGEST_GRADE))
    if len(strange):
        raise DataError(
            f"data.target {name!r}: got {grades[strange[0]]:g} among its values, expected grades: whole numbers from 0 "
            f"(not relevant) to {LARGEST_GRADE}; cut the values into grades in the source, or say `data.task: "
            "regression`"
        )


def check_groups(target: np.ndarray, codes: np.ndarray, column: str) -> None:
    """Refuse splits without any group that has an order to learn or to find.

    Args:
        target: Grades and groups (row, 2).
        codes: The split of each row.
        column: The column that names the groups.

    Raises:
        DataError: No group of a split has two different grades.
    """
    for code, split in enumerate(SPLITS):
        rows = target[codes == code]
        if not has_order(rows).any():
            raise DataError(
                f"data.split.column {column!r}: none of the {len(np.unique(rows[:, 1])):,} groups of the {split} rows "
                f"({len(rows):,}) has two different grades, so there is no order: name the column that rows to be "
                "compared share, or give more groups"
            )


def _is_continuous(column: pa.ChunkedArray) -> bool:
    if not is_number(column.type):
        return False
    num_values = pc.count_distinct(column).as_py()
    if pa.types.is_integer(column.type):
        return bool(num_values > MAX_INTEGER_CLASSES)
    return num_values != 2 or not pc.all(pc.equal(column, pc.round(column.cast(pa.float64())))).as_py()


def _check_classes(classes: list[str], name: str, task: Task, data: Data) -> None:
    if len(classes) < 2:
        other_split = "" if data.split.by == "stratified" else ", or split by stratified"
        raise DataError(
            f"data.target {name!r}: the training rows hold one class only ({classes}), expected at least two: check "
            f"the target, give more data{other_split}"
        )
    if task == "binary" and len(classes) != 2:
        raise DataError(
            f"data.task: got binary, but the target {name!r} has {len(classes)} classes ({classes[:20]}): say "
            "multiclass, or join classes in the source"
        )
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"data.target {name!r}: got {len(classes)} classes, expected at most {MAX_CLASSES}: is it an id or free "
            "text? Name another target, or say `data.task: regression`"
        )
