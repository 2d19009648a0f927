"""Arrow columns as inputs of a graph, by the rules of `models.inference.row_values`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.preparation import Preparation
from models.errors import DataError
from models.inference import row_values
from models.inference.forms import with_forms
from models.inference.row_values import RowError
from models.inputs.record import CategoryRecord, Form, InputRecord
from models.inputs.times import as_seconds
from models.inputs.types import as_text, category_texts, is_number, is_text
from models.sources.whole_numbers import floats_of


def columns(rows: pa.Table, preparation: Preparation, first_row: int, display_name: str) -> dict[str, np.ndarray]:
    """Return columns as inputs of a graph: numbers and times as float64 with NaN, texts with "" for missing.

    Of series: the columns of which inputs are made.

    Args:
        rows: The rows, with all input columns of the model.
        preparation: The model's.
        first_row: Number of the first row, for messages.
        display_name: Name of the rows in messages.

    Raises:
        DataError: The model does not accept a value; names row, column, value and cure.
    """
    try:
        rows = with_forms(rows, preparation.forms, first_row)
        return {
            name: _READERS[part.form](rows.column(name), part, first_row, display_name)
            for name, part in {part.column: part for part in preparation.column_inputs}.items()
        }
    except RowError as error:
        raise DataError(f"{display_name}, {error}") from error


def texts(column: pa.ChunkedArray, name: str, display_name: str) -> np.ndarray:
    """Return a column of texts, an object array (rows,); a missing text is empty.

    Raises:
        DataError: The column holds no text.
    """
    if not is_text(column.type) and not pa.types.is_null(column.type):
        raise DataError(f"{display_name}: column {name!r} is {column.type}, expected text: convert it")
    values: np.ndarray = pc.fill_null(column.cast(pa.string()), "").to_numpy()
    return values


def _numbers(column: pa.ChunkedArray, part: InputRecord, first_row: int, _: str) -> np.ndarray:
    column, name = _decoded(column), part.column
    kind = column.type
    if is_text(kind):
        try:
            column = column.cast(pa.float64())
        except pa.ArrowInvalid:  # empty text, spaces, true and false: cell by cell
            return row_values.numbers(row_values.number_cells(column.to_pylist()), name, first=first_row)
    elif not (is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise RowError(f"column {name!r} is {kind}, expected numbers: convert it")
    values: np.ndarray = floats_of(column).to_numpy()
    return row_values.in_range(values, name, first=first_row)


def _times(column: pa.ChunkedArray, part: InputRecord, first_row: int, _: str) -> np.ndarray:
    column, name = _decoded(column), part.name
    kind = column.type
    if is_text(kind) or pa.types.is_null(kind):
        return row_values.moments(column.to_pylist(), name, first=first_row)
    if not (is_number(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise RowError(f"column {name!r} is {kind}, expected times: convert it")
    try:
        return as_seconds(column, name, range(first_row - 1, first_row - 1 + len(column)))
    except DataError as error:
        raise RowError(str(error)) from error


def _categories(column: pa.ChunkedArray, part: CategoryRecord, first_row: int, _: str) -> np.ndarray:
    column = _decoded(column)
    kind = column.type
    if pa.types.is_decimal(kind) and (kind.scale == 0 or part.dtype == "integer"):
        column = as_text(column)
    elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        column = floats_of(column)
    elif not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind)):
        try:
            column = category_texts(column)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise RowError(
                f"column {part.name!r} is {kind}, expected text, whole numbers or booleans: convert it"
            ) from error
    if is_text(column.type) and part.dtype == "string":
        values: np.ndarray = pc.fill_null(column, "").to_numpy()
        return values
    unique = pc.unique(column)
    try:
        texts = row_values.categories(unique.to_pylist(), part.name, part.dtype)
    except RowError:
        return row_values.categories(column.to_pylist(), part.name, part.dtype, first_row)  # names the row
    return np.asarray(texts[pc.index_in(column, unique).to_numpy()])


def _texts(column: pa.ChunkedArray, part: InputRecord, _: int, display_name: str) -> np.ndarray:
    return texts(column, part.name, display_name)


_READERS: dict[Form, Callable[[pa.ChunkedArray, Any, int, str], np.ndarray]] = {
    "number": _numbers,
    "time": _times,
    "category": _categories,
    "text": _texts,
}
"""Return the values of a column, given the number of the first row and the name of the rows for messages."""


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
