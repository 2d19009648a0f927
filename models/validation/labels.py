"""Checks submitted labels against the target and returns one label per id."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.header import no_such_column
from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError, UsageError, did_you_mean
from models.feedback.columns import LABEL
from models.feedback.label_text import label_text
from models.inputs.types import as_text, is_number, is_text
from models.kinds.task import PerTask
from models.sources.whole_numbers import floats_of

_SHOWN = 20
_BITS = {"true": "1", "yes": "1", "false": "0", "no": "0"}
_BOOLEANS = {"true": "true", "1": "true", "yes": "true", "false": "false", "0": "false", "no": "false"}


def label_columns_of(names: Sequence[str], preparation: Preparation) -> list[str]:
    """Return the names of the label columns: `label_column`, or the target columns if there are several.

    Raises:
        UsageError: See `label_column`.
        DataError: A label column is absent.
    """
    columns = preparation.target.columns
    if len(columns) == 1:
        return [label_column(names, preparation)]
    for column in columns:
        if column not in names:
            raise DataError(
                f"expected a column of each target, {', '.join(columns)}: {no_such_column(column, list(names))}"
            )
    return columns


def label_column(names: Sequence[str], preparation: Preparation) -> str:
    """Return the name of the label column: the target's name, else `label`.

    Raises:
        UsageError: The model is of text, in which every character is a label itself.
        DataError: There is no label column, or the rows are predictions.
    """
    if preparation.characters is not None:
        raise UsageError("a model of text has no labels: more text at the source is what it learns from")
    target = preparation.target.columns[0]
    if target in names:
        return target
    if LABEL in names and not any(name.startswith("probability_") for name in names):
        return LABEL
    if LABEL in names:
        raise DataError(
            f"column {LABEL!r} stands beside probabilities: these are predictions, not what turned out; call the "
            f"column of true values {target!r}"
        )
    raise DataError(f"expected a column {target!r} or {LABEL!r}: {no_such_column(target, list(names))}")


def checked_labels(rows: pa.Table, id_column: str, preparation: Preparation, display_name: str) -> pa.Table:
    """Return `id` and `label`, both text, one row per id, without rows with an empty label.

    A class is in the form of the target's classes; a number has all digits that an exact conversion needs.

    Args:
        rows: A table with the id column and a label column; other columns are ignored.
        id_column: The column with the id of the predicted row.
        preparation: The preparation of the model or the project, whose target defines valid labels.
        display_name: The name of the rows in messages.

    Raises:
        DataError: A label is no class or number, an id is missing, or an id has two labels; the message names the row.
    """
    if id_column not in rows.column_names:
        raise DataError(f"{display_name}: {no_such_column(id_column, rows.column_names)}")
    try:
        names = label_columns_of(rows.column_names, preparation)
    except DataError as error:
        raise DataError(f"{display_name}: {error}") from error
    columns = rows.select(names)
    for column in (rows.column(id_column), *columns.columns):
        _refuse_unfit(column.type, display_name)
    ids = as_text(rows.column(id_column))
    is_set = _are_set(columns, display_name)
    numbers = np.flatnonzero(is_set) + 1
    ids, columns = ids.filter(pa.array(is_set)), columns.filter(pa.array(is_set))
    if ids.null_count:
        row = numbers[np.flatnonzero(pc.is_null(ids).to_numpy())[0]]
        raise DataError(f"{display_name}, row {row}, column {id_column!r}: no id: say which prediction the label is of")
    labels = _LABELS[preparation.task](columns, preparation.target, numbers, display_name)
    return _unique_labels(pa.table({"id": ids, LABEL: labels}), numbers, display_name)


def _refuse_unfit(kind: pa.DataType, display_name: str) -> None:
    if not (is_text(kind) or is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"{display_name}: got ids or labels of type {kind}, expected text, numbers or booleans: convert them"
        )


def _are_set(columns: pa.Table, display_name: str) -> np.ndarray:
    """Return which rows have a label, bool (rows,).

    Raises:
        DataError: A row has labels of some targets only.
    """
    is_set = np.stack(
        [
            pc.invert(pc.is_null(as_text(column), nan_is_null=True)).to_numpy(zero_copy_only=False)
            for column in columns.columns
        ]
    )
    partial = np.flatnonzero(is_set.any(axis=0) & ~is_set.all(axis=0))
    if len(partial):
        row = int(partial[0])
        lacks = columns.column_names[int(np.flatnonzero(~is_set[:, row])[0])]
        raise DataError(f"{display_name}, row {row + 1}: no {lacks!r}, expected a label of every target, or of none")
    return np.asarray(is_set.all(axis=0))


def _number_labels(columns: pa.Table, target: TargetEncoding, numbers: np.ndarray, display_name: str) -> pa.Array:
    if columns.num_columns == 1:
        return _numbers(columns.column(0), target.name, numbers, display_name)
    return _of_several(columns, numbers, display_name, is_label=False)


def _bit_labels(columns: pa.Table, target: TargetEncoding, numbers: np.ndarray, display_name: str) -> pa.Array:
    return _of_several(columns, numbers, display_name, is_label=True)


def _class_labels(columns: pa.Table, target: TargetEncoding, numbers: np.ndarray, display_name: str) -> pa.ChunkedArray:
    return _classes(columns.column(0), target, numbers, display_name)


_LABELS: PerTask[Callable[[pa.Table, TargetEncoding, np.ndarray, str], pa.Array | pa.ChunkedArray]] = {
    "binary": _class_labels,
    "multiclass": _class_labels,
    "multilabel": _bit_labels,
    "regression": _number_labels,
    "quantile": _number_labels,
    "language": _number_labels,
    "ranking": _number_labels,
}


def _of_several(columns: pa.Table, numbers: np.ndarray, display_name: str, *, is_label: bool) -> pa.Array:
    names = columns.column_names
    texts = [_numbers(column, name, numbers, display_name, is_label=is_label)
             for name, column in zip(names, columns.columns, strict=True)]  # fmt: skip
    rows = zip(*(part.to_pylist() for part in texts), strict=True)
    return pa.array([label_text(dict(zip(names, map(float, row), strict=True)), names) for row in rows], pa.string())


def _numbers(
    column: pa.ChunkedArray, name: str, numbers: np.ndarray, display_name: str, *, is_label: bool = False
) -> pa.Array:
    texts = (as_text(column) if is_text(column.type) else floats_of(column)).to_pylist()
    expected = "0 or 1" if is_label else "a number"
    parts = []
    for row, text in zip(numbers, texts, strict=True):
        try:
            value = float(_BITS.get(str(text).lower(), text) if is_label else text)
        except ValueError:
            value = float("nan")
        if not np.isfinite(value) or (is_label and value not in (0, 1)):
            raise DataError(
                f"{display_name}, row {row}: got label {text!r} of {name!r}, expected {expected}: correct it"
            )
        parts.append(repr(value))
    return pa.array(parts, pa.string())


def _classes(
    column: pa.ChunkedArray, target: TargetEncoding, numbers: np.ndarray, display_name: str
) -> pa.ChunkedArray:
    texts = _as_written(column, target)
    classes = target.class_names
    strange = np.flatnonzero(pc.is_null(pc.index_in(texts, pa.array(classes, pa.string()))).to_numpy())
    if len(strange):
        got = str(as_text(column)[int(strange[0])].as_py())
        cure = did_you_mean(got, classes, "correct it; a new class comes by rows at the source")
        raise DataError(
            f"{display_name}, row {numbers[strange[0]]}: got label {got!r} of {target.name!r}, expected one of "
            f"{', '.join(classes[:_SHOWN])}: {cure}"
        )
    return texts


def _as_written(column: pa.ChunkedArray, target: TargetEncoding) -> pa.ChunkedArray:
    """Convert values to the form of the classes, by the target's type: `True` becomes `true`, `5.0` becomes `5`."""
    texts = as_text(column)
    if target.dtype == "boolean":
        return pa.chunked_array([[_BOOLEANS.get(str(text).lower(), text) for text in texts.to_pylist()]], pa.string())
    if target.dtype == "integer" and not is_number(column.type):
        try:
            return as_text(texts.cast(pa.float64()))
        except pa.ArrowInvalid:
            return texts
    return texts


def _unique_labels(table: pa.Table, numbers: np.ndarray, display_name: str) -> pa.Table:
    ids = table.column("id").combine_chunks()
    if not len(ids):
        return table
    first = np.sort(np.unique(ids.to_numpy(zero_copy_only=False).astype(str), return_index=True)[1])
    if len(first) == len(ids):
        return table
    rows = table.take(first)
    place = pc.index_in(ids, rows.column("id"))
    differs = pc.not_equal(rows.column(LABEL).take(place), table.column(LABEL)).to_numpy()
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        earlier = int(first[place[row].as_py()])
        label, label_before = (table.column(LABEL)[index].as_py() for index in (row, earlier))
        raise DataError(
            f"{display_name}, row {numbers[row]}: id {ids[row].as_py()!r} has label {label!r} here and "
            f"{label_before!r} in row "
            f"{numbers[earlier]}: keep one"
        )
    return rows
