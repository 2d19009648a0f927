"""The types of columns, and their values as numbers or as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.errors import DataError
from models.sources.whole_numbers import MOST_EXACT, are_large, floats_of

Dtype = Literal["string", "integer", "boolean", "time"]


def dtype_of(kind: pa.DataType) -> Dtype:
    """Return the type of a categorical column's values before they become text."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "time"
    return "integer" if is_number(kind) else "string"


def category_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as text, see `as_text`; times of any unit as `models.inference.row_values.time_text`."""
    if not pa.types.is_timestamp(column.type):
        return as_text(column)
    return pc.replace_substring_regex(
        as_text(column.cast(pa.timestamp("us"), safe=False)), r"( 00:00:00)?\.000000$", ""
    )


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as text: null for missing and for empty text; whole numbers lose a trailing `.0`."""
    return scratch.by_parts(column, _as_text)


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        texts = _numbers_as_text(floats_of(column))
        return _exact_decimals(texts, column) if pa.types.is_decimal(kind) else texts
    if not pa.types.is_string(kind):
        column = column.cast(pa.string())
    if pc.any(pc.equal(column, "")).as_py():
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def as_float64(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a numeric column as float64 (rows,), NaN for missing.

    Raises:
        DataError: A column declared numeric holds text that is no number or is of a type that is none, or values are
            infinite; names the first rows.
    """

    def values_of(part: slice) -> np.ndarray:
        rows = column.slice(part.start, part.stop - part.start)
        if pa.types.is_dictionary(column.type):
            rows = rows.cast(column.type.value_type)
        if not is_number(column.type):
            rows = _text_to_numbers(rows, name)
        return np.asarray(floats_of(rows).to_numpy())

    values = scratch.filled(len(column), np.float64, values_of)
    _refuse_infinite(values, name)
    return values


def check_finite(table: pa.Table, names: Sequence[str], positions: np.ndarray) -> None:
    """Refuse infinite numbers in some columns.

    Args:
        table: Rows, perhaps without some of the source's.
        names: The columns; those that hold no floats pass.
        positions: The position of each row in the source (row,), from 0.

    Raises:
        DataError: Names the column and the first rows of the source, from 1.
    """
    for name in names:
        column = table.column(name)
        if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
            _refuse_infinite(scratch.numbers(column), name, positions)


def _refuse_infinite(values: np.ndarray, name: str, positions: np.ndarray | None = None) -> None:
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        first = infinite[:5] if positions is None else positions[infinite[:5]]
        rows = ", ".join(str(position + 1) for position in first)
        raise DataError(
            f"column {name!r}: {len(infinite)} infinite values, first in rows {rows}, expected finite numbers "
            "(missing ones are fine): replace them in the source, or drop the column, if it is not the target, in "
            "data.features.drop"
        )


def is_number(kind: pa.DataType) -> bool:
    """Return True for integers, floats and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return True for bytes, such as those of a picture's file."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return True for text, including dictionary-encoded text."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


NOT_YET = "no training row has a value"
"""Why a column is left out that is collected only lately."""


def collected_later(left_out: Mapping[str, str]) -> list[str]:
    """Return the columns among those left out that will be inputs once training rows have values."""
    return [name for name, reason in left_out.items() if reason == NOT_YET]


def is_collected_later(name: str, has_value: np.ndarray, train: np.ndarray) -> bool:
    """Return whether no training row has a value of a column, but others have.

    Args:
        name: The column.
        has_value: Which rows have one (rows,).
        train: True for training rows (rows,).

    Raises:
        DataError: No row has a value.
    """
    if not has_value.any():
        raise DataError(all_missing(name))
    return not has_value[train].any()


def all_missing(name: str) -> str:
    """Return the error message for a column without values."""
    return (
        f"column {name!r} has no value at all in the training rows: put it right in the source, or name it in "
        "data.features.drop"
    )


def _numbers_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = column.to_numpy()
    whole = pa.array(values, mask=np.isnan(values) | (values != np.round(values)) | (np.abs(values) >= MOST_EXACT))
    as_whole = whole.cast(pa.int64()).cast(pa.string())
    as_written = pa.array(values.astype(np.str_), pa.string(), mask=np.isnan(values))  # 1e-05, as in Python and JSON
    return pa.chunked_array([pc.coalesce(as_whole, as_written)])


def _exact_decimals(texts: pa.ChunkedArray, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts with large decimals, of which a float64 holds only some, as they were written."""
    written = column.cast(pa.string())
    if column.type.scale > 0:
        written = pc.replace_substring_regex(written, r"\.?0*$", "")
    return pc.if_else(are_large(column.cast(pa.float64())), written, texts)


def _text_to_numbers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if pa.types.is_boolean(column.type):
        return column.cast(pa.float64())
    if not (is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"column {name!r} is {column.type}, expected numbers: convert it in the source")
    try:
        return pc.if_else(pc.equal(column, ""), None, column).cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise DataError(
            f"column {name!r}: declared numeric, but {str(error).splitlines()[0]}: declare it categorical in "
            "data.features.kinds, or clean it in the source"
        ) from error
