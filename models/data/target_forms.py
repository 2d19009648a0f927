"""What becomes of a target in preparation, a row a task: its encoding, its stored columns, values and tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.data.outputs import (
    check_label,
    fit_labels,
    fit_numbers,
    fit_quantiles,
    middle_and_spread,
    output_values,
    with_outputs,
)
from models.data.preparation import SPLITS, Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.inputs.types import as_float64, as_text, dtype_of
from models.kinds.task import TASKS, PerTask, Task
from models.metrics.ranking import has_order
from models.project_spec.blocks import Data, Kind
from models.project_spec.reserved_columns import KEY_COLUMN

MAX_CLASSES = 1000
LARGEST_GRADE = 30
"""Of a ranking. Source: LightGBM has gains for grades up to 30 (`label_gain`)."""

Columns = dict[str, pa.Array | pa.ChunkedArray]
Weights = np.ndarray | None
Tensors = dict[str, np.ndarray]
Splits = tuple[np.ndarray, np.ndarray | None]
"""The split and the key (time or group) of each row."""


@dataclass(frozen=True)
class TargetForm:
    """What becomes of the target of a task."""

    fit: Callable[[pa.Table, Data, bool, Weights], TargetEncoding]
    """(target columns of the training rows, spec, whether on the log scale, weights) -> the encoding."""
    column: Callable[[pa.ChunkedArray, str], pa.Array | pa.ChunkedArray]
    """(column, name) -> what the prepared rows hold."""
    check: Callable[[Columns, pa.Table, TargetEncoding, Splits], None]
    """(stored columns, all columns, encoding, splits): refuses values that the task has not."""
    values: Callable[[pa.Table, TargetEncoding], np.ndarray]
    """(prepared rows, encoding) -> the form for metrics."""
    tensors: Callable[[np.ndarray, TargetEncoding], Tensors]
    """(values for metrics, encoding) -> what is trained on."""
    texts_learn: Callable[[Sequence[pa.Array | pa.ChunkedArray], TargetEncoding], np.ndarray]
    """(stored columns, encoding) -> what features of texts are fitted to."""
    more_columns: tuple[str, ...] = ()
    """Columns that `values` reads beside the target's."""
    log_scale: tuple[Kind, ...] = ()
    """The kinds of data whose target may be learnt as its logarithm."""


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
    target = FORMS[task].fit(targets, data, is_log, weights)
    if positive is None:
        return target
    return target.model_copy(update={"classes": _with_positive_last(target.class_names, positive, data.target_name)})


def check_positive(positive: str, task: Task) -> None:
    """Refuse a positive class of a task that has not two classes.

    Raises:
        DataError: Names the class and the task.
    """
    if not TASKS[task].has_positive:
        raise DataError(
            f"goal.positive: got {positive!r}, but the task is {task}: it names one of two classes, so leave it out"
        )


def prepared_target(table: pa.Table, target: TargetEncoding, task: Task, data: Data, splits: Splits) -> Columns:
    """Return the target's columns of the prepared rows, by name: classes as texts, all others as float64.

    Args:
        table: All rows.
        target: The target, fitted on the training rows.
        task: The task of the target.
        data: The spec's `data` block.
        splits: Of the rows.

    Raises:
        DataError: A value is none that the task has, a class that no training row has, or groups without an order.
    """
    names = dict.fromkeys([*target.columns, *data.past_targets])
    columns = {name: FORMS[task].column(table.column(name), name) for name in names}
    FORMS[task].check(columns, table, target, splits)
    return columns


def true_values(rows: pa.Table, preparation: Preparation) -> np.ndarray:
    """Return the true values of prepared rows in the form for metrics.

    int64 class indices (rows,), float64 in the target's own unit (rows,), or of several outputs (rows, output); labels
    are 0 or 1. Of a ranking the grade and the number of the group, float64 (rows, 2).

    Args:
        rows: Prepared rows with the columns of `true_columns`.
        preparation: That of the rows.

    Raises:
        DataError: A class does not occur in the training rows.
    """
    return FORMS[preparation.task].values(rows, preparation.target)


def true_columns(preparation: Preparation) -> list[str]:
    """Return the columns of the prepared rows that `true_values` reads."""
    return [*preparation.target.columns, *FORMS[preparation.task].more_columns]


def target_tensors(rows: pa.Table, preparation: Preparation) -> Tensors:
    """Return `target`, int64 classes or float32 numbers and labels, and for numbers `value` as `true_values`."""
    return FORMS[preparation.task].tensors(true_values(rows, preparation), preparation.target)


def learnt_by_texts(columns: Sequence[pa.Array | pa.ChunkedArray], task: Task, target: TargetEncoding) -> np.ndarray:
    """Return class indices (row,), numbers on the net's scale (row,), or values of several targets (row, target).

    Args:
        columns: The target's columns of the prepared rows.
        task: The task of the target.
        target: The target.
    """
    return FORMS[task].texts_learn(columns, target)


def class_indices(column: pa.ChunkedArray, target: TargetEncoding) -> np.ndarray:
    """Return class texts as int64 indices into the target's classes (rows,).

    Raises:
        DataError: A class is none of the target's.
    """
    classes = pa.array(target.classes, pa.string())

    def indices_of(part: slice) -> np.ndarray:
        rows = column.slice(part.start, part.stop - part.start)
        indices = pc.index_in(rows, classes)
        if indices.null_count:
            unseen = pc.unique(rows.filter(pc.is_null(indices))).to_pylist()[:5]
            raise DataError(
                f"data.target {target.name!r}: got classes {unseen}, expected those of the training rows, "
                f"{target.class_names[:20]}: leave such rows out in the source"
            )
        return np.asarray(indices.to_numpy())

    return scratch.filled(len(column), np.int64, indices_of)


def _fit_two_classes(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    target = _classes_of(targets, data)
    classes = target.class_names
    if len(classes) != 2:
        raise DataError(
            f"data.task: got binary, but the target {target.name!r} has {len(classes)} classes ({classes[:20]}): say "
            "multiclass, or join classes in the source"
        )
    return target


def _fit_classes(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    target = _classes_of(targets, data)
    if len(target.class_names) > MAX_CLASSES:
        raise DataError(
            f"data.target {target.name!r}: got {len(target.class_names)} classes, expected at most {MAX_CLASSES}: is "
            "it an id or free text? Name another target, or say `data.task: regression`"
        )
    return target


def _classes_of(targets: pa.Table, data: Data) -> TargetEncoding:
    name, column = data.target_name, targets.column(data.targets[0])
    dtype = dtype_of(column.type)
    classes = [text for text in pc.unique(as_text(column)).to_pylist() if text is not None]
    classes.sort(key=float if dtype == "integer" else None)
    if len(classes) < 2:
        other_split = "" if data.split.by == "stratified" else ", or split by stratified"
        raise DataError(
            f"data.target {name!r}: the training rows hold one class only ({classes}), expected at least two: check "
            f"the target, give more data{other_split}"
        )
    return TargetEncoding(name=name, classes=classes, dtype=dtype)


def _with_positive_last(classes: list[str], positive: str, name: str) -> list[str]:
    if positive not in classes:
        raise DataError(
            f"goal.positive: got {positive!r}, expected one of the classes of {name!r}, "
            f"{' or '.join(map(repr, classes))}"
        )
    return [*(class_name for class_name in classes if class_name != positive), positive]


def _fit_labels(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    return fit_labels(targets, data)


def _fit_regression(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    if len(data.targets) > 1:
        return fit_numbers(targets, data, weights)
    target = _fit_number(targets.column(data.targets[0]), data.target_name, is_log, weights)
    return with_outputs(target, data.window.horizons) if data.window else target


def _fit_quantiles(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    if data.window is None:
        return fit_quantiles(targets, data, weights)
    target = _fit_number(targets.column(data.targets[0]), data.target_name, is_log, weights)
    return with_outputs(target, data.window.horizons, data.quantiles or ())


def _fit_grades(targets: pa.Table, data: Data, is_log: bool, weights: Weights) -> TargetEncoding:
    return TargetEncoding(name=data.target_name, group=data.split.column)


def _fit_number(column: pa.ChunkedArray, name: str, is_log: bool, weights: Weights) -> TargetEncoding:
    values = as_float64(column, name)
    present = ~np.isnan(values)
    values, weights = scratch.chosen(values, present), None if weights is None else scratch.chosen(weights, present)
    if not len(values):
        raise DataError(
            f"data.target {name!r} has no value in the training rows: fill it in the source, or take another"
        )
    middle, spread = middle_and_spread(values, name, weights)
    if not is_log:
        return TargetEncoding(name=name, shift=middle, scale=spread)
    offset = 0.0 if values.min() > 0 else float(values[values > 0].min(initial=np.inf))
    logarithms = scratch.computed(lambda part: np.log(part + (offset if np.isfinite(offset) else 1.0)), values)
    shift, scale = middle_and_spread(logarithms, name, weights)
    return TargetEncoding(
        name=name,
        shift=shift,
        scale=scale,
        log_offset=offset if np.isfinite(offset) else 1.0,
        deviation=spread,
    )


def _as_class(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    return as_text(column)


def _as_number(column: pa.ChunkedArray, name: str) -> pa.Array:
    return pa.array(as_float64(column, name))


def _check_classes(columns: Columns, table: pa.Table, target: TargetEncoding, splits: Splits) -> None:
    class_indices(columns[target.name], target)


def _check_labels(columns: Columns, table: pa.Table, target: TargetEncoding, splits: Splits) -> None:
    for name in columns:
        check_label(table.column(name), name)


def _check_numbers(columns: Columns, table: pa.Table, target: TargetEncoding, splits: Splits) -> None:
    """Accept any number."""


def _check_grades(columns: Columns, table: pa.Table, target: TargetEncoding, splits: Splits) -> None:
    codes, groups = splits
    grades = columns[target.name].to_numpy()
    strange = np.flatnonzero((grades != np.round(grades)) | (grades < 0) | (grades > LARGEST_GRADE))
    if len(strange):
        raise DataError(
            f"data.target {target.name!r}: got {grades[strange[0]]:g} among its values, expected grades: whole numbers "
            f"from 0 (not relevant) to {LARGEST_GRADE}; cut the values into grades in the source, or say `data.task: "
            "regression`"
        )
    _check_groups(np.stack([grades, np.asarray(groups)], axis=1), codes, str(target.group))


def _check_groups(target: np.ndarray, codes: np.ndarray, column: str) -> None:
    """Refuse splits without any group that has an order: target holds grades and groups (row, 2)."""
    for code, split in enumerate(SPLITS):
        rows = target[codes == code]
        if not has_order(rows).any():
            raise DataError(
                f"data.split.column {column!r}: none of the {len(np.unique(rows[:, 1])):,} groups of the {split} rows "
                f"({len(rows):,}) has two different grades, so there is no order: name the column that rows to be "
                "compared share, or give more groups"
            )


def _class_values(rows: pa.Table, target: TargetEncoding) -> np.ndarray:
    return class_indices(rows.column(target.name), target)


def _number_values(rows: pa.Table, target: TargetEncoding) -> np.ndarray:
    values: np.ndarray = output_values(rows, target) if target.outputs else scratch.numbers(rows.column(target.name))
    return values


def _grade_values(rows: pa.Table, target: TargetEncoding) -> np.ndarray:
    grades = scratch.empty((rows.num_rows, 2), np.float64)
    for place, name in enumerate((target.name, KEY_COLUMN)):
        grades[:, place] = scratch.numbers(rows.column(name))
    return grades


def _class_tensors(values: np.ndarray, target: TargetEncoding) -> Tensors:
    return {"target": values}


def _label_tensors(values: np.ndarray, target: TargetEncoding) -> Tensors:
    return {"target": target.encode(values).astype(np.float32)}


def _number_tensors(values: np.ndarray, target: TargetEncoding) -> Tensors:
    return {"target": target.encode(values).astype(np.float32), "value": values}


def _grade_tensors(values: np.ndarray, target: TargetEncoding) -> Tensors:
    return {"target": target.encode(values[:, 0]).astype(np.float32), "value": values}


def _texts_learn_classes(columns: Sequence[pa.Array | pa.ChunkedArray], target: TargetEncoding) -> np.ndarray:
    return class_indices(columns[0], target)


def _texts_learn_number(columns: Sequence[pa.Array | pa.ChunkedArray], target: TargetEncoding) -> np.ndarray:
    if target.outputs:
        return _texts_learn_several(columns, target)
    return scratch.computed(target.encode, scratch.numbers(columns[0]))


def _texts_learn_several(columns: Sequence[pa.Array | pa.ChunkedArray], target: TargetEncoding) -> np.ndarray:
    return np.stack([column.to_numpy() for column in columns], axis=1)


_CLASSES = TargetForm(
    fit=_fit_classes,
    column=_as_class,
    check=_check_classes,
    values=_class_values,
    tensors=_class_tensors,
    texts_learn=_texts_learn_classes,
)
_NUMBERS = TargetForm(
    fit=_fit_regression,
    column=_as_number,
    check=_check_numbers,
    values=_number_values,
    tensors=_number_tensors,
    texts_learn=_texts_learn_number,
    log_scale=("table", "image", "series"),
)
FORMS: PerTask[TargetForm] = {
    "binary": replace(_CLASSES, fit=_fit_two_classes),
    "multiclass": _CLASSES,
    "multilabel": TargetForm(
        fit=_fit_labels,
        column=_as_number,
        check=_check_labels,
        values=output_values,
        tensors=_label_tensors,
        texts_learn=_texts_learn_several,
    ),
    "regression": _NUMBERS,
    "quantile": replace(
        _NUMBERS,
        fit=_fit_quantiles,
        values=output_values,
        texts_learn=_texts_learn_several,
        log_scale=("series",),
    ),
    "language": _NUMBERS,  # a text has no target column, so no row of it comes here: `models/data/text.py`
    "ranking": TargetForm(
        fit=_fit_grades,
        column=_as_number,
        check=_check_grades,
        values=_grade_values,
        tensors=_grade_tensors,
        texts_learn=_texts_learn_number,
        more_columns=(KEY_COLUMN,),
    ),
}
