"""The task of a target, its classes, and its values as numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.columns import as_float64, as_text, dtype_of, is_number, is_text
from models.data.preparation import TargetEncoding
from models.errors import DataError
from models.project_spec.blocks import Data, Task

MAX_INTEGER_CLASSES = 20
MAX_CLASSES = 1000


def infer_task(column: pa.ChunkedArray, data: Data) -> Task:
    """Return the task of a target, from its training rows.

    `data.task` takes precedence. Otherwise text and booleans are classes; integers are classes when there are at most
    20 different values (floats: exactly two, both whole); all other numbers are a regression. Two classes are binary.

    Raises:
        DataError: The target's type fits no task, or not the declared one.
    """
    name, kind = data.target, column.type
    if not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"data.target {name!r}: got type {kind}, expected numbers, text or booleans: convert it")
    if data.task == "regression" and not is_number(kind):
        raise DataError(f"data.task: regression, but the target {name!r} is {kind}, expected numbers")
    if data.task is not None:
        return data.task
    if data.kind == "series" or _is_continuous(column):
        return "regression"
    return "binary" if len(pc.unique(column)) == 2 else "multiclass"


def certain_task(first: pa.ChunkedArray, data: Data) -> Task | None:
    """Return the task if the first values of a target decide it; None if later values may change it."""
    values = first.drop_null()
    if pa.types.is_null(values.type) or not len(values):
        return None
    if is_number(values.type):
        return "regression" if pc.count_distinct(values).as_py() > 2 and _is_continuous(values) else None
    return infer_task(values, data)


def fit_target(column: pa.ChunkedArray, data: Data, task: Task) -> TargetEncoding:
    """Return the classes, or shift and scale, of the training rows.

    Raises:
        DataError: There is only one class, more than two for binary, or more than a thousand.
    """
    name = data.target
    if task == "regression":
        values = as_float64(column, name)
        values = values[~np.isnan(values)]
        if not len(values):
            raise DataError(f"data.target {name!r} has no value in the training rows")
        return TargetEncoding(name=name, shift=float(values.mean()), scale=float(values.std()) or 1.0)
    dtype = dtype_of(column.type)
    classes = [text for text in pc.unique(as_text(column)).to_pylist() if text is not None]
    classes.sort(key=float if dtype == "integer" else None)
    _check_classes(classes, name, task)
    return TargetEncoding(name=name, classes=classes, dtype=dtype)


def class_indices(column: pa.ChunkedArray, target: TargetEncoding) -> np.ndarray:
    """Return class texts as int64 indices into the target's classes (rows,).

    Raises:
        DataError: A class does not occur in the training rows.
    """
    indices = pc.index_in(column, pa.array(target.classes, pa.string()))
    if indices.null_count:
        unseen = pc.unique(column.filter(pc.is_null(indices))).to_pylist()[:5]
        raise DataError(
            f"data.target {target.name!r}: classes {unseen} occur in validation or test rows but not in training, "
            f"which has {(target.classes or [])[:20]}: split by stratified, or leave those rows out in the source"
        )
    values: np.ndarray = indices.to_numpy().astype(np.int64)
    return values


def _is_continuous(column: pa.ChunkedArray) -> bool:
    if not is_number(column.type):
        return False
    num_values = pc.count_distinct(column).as_py()
    if pa.types.is_integer(column.type):
        return bool(num_values > MAX_INTEGER_CLASSES)
    return num_values != 2 or not pc.all(pc.equal(column, pc.round(column.cast(pa.float64())))).as_py()


def _check_classes(classes: list[str], name: str, task: Task) -> None:
    if len(classes) < 2:
        raise DataError(
            f"data.target {name!r}: the training rows hold one class only ({classes}), expected at least two: check "
            "the target, give more data, or split by stratified"
        )
    if task == "binary" and len(classes) != 2:
        raise DataError(f"data.task: binary, but the target {name!r} has {len(classes)} classes: {classes[:20]}")
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"data.target {name!r}: got {len(classes)} classes, expected at most {MAX_CLASSES}: is it an id or free "
            "text? Name another target, or say `data.task: regression`"
        )
