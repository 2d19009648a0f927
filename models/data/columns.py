"""The choice of a model's input columns and their kinds, and the text form of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError
from models.project_spec.blocks import Data
from models.project_spec.reserved_columns import SLICE_PREFIX
from models.sources.whole_numbers import MOST_EXACT, are_large

ColumnType = Literal["numeric", "categorical", "datetime", "text"]
Dtype = Literal["string", "integer", "boolean"]


@dataclass(frozen=True)
class Columns:
    """Input columns by kind, in the table's order, and the reason why each other column is left out."""

    numeric: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    datetime: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    extremes: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        """All input columns."""
        return [*self.numeric, *self.categorical, *self.datetime, *self.text]


def choose(schema: pa.Schema, data: Data) -> Columns:
    """Divide the columns of a table into inputs and the rest, by the spec and by type alone.

    The order is that of `features.columns`, else of the table. Numbers are numeric; text and booleans are
    categorical (`prepare` makes texts of those that hold sentences); dates and timestamps are datetimes. The split's
    own column is left out unless `features.columns` or `features.kinds` names it. For a series the past of the target
    is an input.

    Raises:
        DataError: The spec names a column that no net can take, or no input column is left.
    """
    columns = Columns()
    if data.kind == "image":
        return columns
    types = {field.name: field.type for field in schema}
    names = [name for name in data.features.columns or () if name in types]
    for name in dict.fromkeys([*names, *types]):  # a user's own net relies on the order in the spec
        reason = _reason_to_leave_out(name, types[name], data)
        if reason:
            columns.left_out[name] = reason
        elif name not in data.targets or data.kind == "series":
            kind = _kind(name, types[name], data)
            getattr(columns, kind).append(name)
    if not columns.inputs:
        raise no_input_column(columns.left_out)
    return columns


def no_input_column(left_out: Mapping[str, str]) -> DataError:
    """Return the error of a table without an input; `left_out`: the columns that are none, and why."""
    if not left_out:
        return DataError("data.features leaves no input column: the data has the target alone; add columns to it")
    reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
    return DataError(f"data.features leaves no input column ({reasons}): name some in data.features.columns")


def dtype_of(kind: pa.DataType) -> Dtype:
    """Return the type of a categorical column's values before they become text."""
    if pa.types.is_boolean(kind):
        return "boolean"
    return "integer" if is_number(kind) else "string"


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as text: null for missing and for empty text; whole numbers lose a trailing `.0`."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        texts = _numbers_as_text(column.cast(pa.float64()))
        return _exact_decimals(texts, column) if pa.types.is_decimal(kind) else texts
    if not pa.types.is_string(kind):
        column = column.cast(pa.string())
    if pc.any(pc.equal(column, "")).as_py():
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    return column


def with_slices(rows: pa.Table, source: pa.Table, names: Sequence[str]) -> pa.Table:
    """Add the slice columns that are no inputs to the prepared rows, as texts and under reserved names.

    Args:
        rows: The prepared rows.
        source: The same rows with all of their columns, including made ones.
        names: The spec's `judge.slices`.

    Raises:
        DataError: A slice column cannot be converted to text.
    """
    for name in dict.fromkeys(names):
        if name in rows.column_names:
            continue
        try:
            texts = as_text(source.column(name))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"judge.slices: column {name!r} is of type {source.column(name).type}, expected text, numbers, "
                "booleans or dates: make a text of it with data.features.make, or name another column"
            ) from error
        rows = rows.append_column(SLICE_PREFIX + name, texts.dictionary_encode())
    return rows


def as_float64(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a numeric column as float64 (rows,), NaN for missing.

    Raises:
        DataError: A column declared numeric holds text that is no number or is of a type that is none, or values are
            infinite; names the first rows.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if not is_number(kind):
        column = _text_to_numbers(column, name)
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()
    _refuse_infinite(values, name, np.arange(len(values)))
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
            _refuse_infinite(column.to_numpy(), name, positions)


def _refuse_infinite(values: np.ndarray, name: str, positions: np.ndarray) -> None:
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        rows = ", ".join(str(position + 1) for position in positions[infinite[:5]])
        raise DataError(
            f"column {name!r}: {len(infinite)} infinite values, first in rows {rows}, expected finite numbers "
            "(missing ones are fine): replace them in the source, or drop the column, if it is not the target, in "
            "data.features.drop"
        )


def is_number(kind: pa.DataType) -> bool:
    """Return True for integers, floats and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


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


def _reason_to_leave_out(name: str, kind: pa.DataType, data: Data) -> str | None:
    features = data.features
    if name in features.drop:
        return "dropped by the spec"
    is_named = name in (features.columns or []) or name in features.kinds
    if (
        features.columns is not None
        and name not in features.columns
        and not (data.kind == "series" and name in data.targets)
    ):
        return "not in data.features.columns"
    if name in data.targets:
        return None
    if name == data.weight or (name == data.id and not is_named):
        return "it weighs the row (data.weight)" if name == data.weight else "it names the row (data.id)"
    if data.window is not None and name == data.window.series_key:
        if is_named:
            raise DataError(
                f"data.features: column {name!r} is named, but it names the series (data.window.series_key), which is "
                "never an input: give facts of a series in columns of their own"
            )
        return "it names the series (data.window.series_key)"
    if name == data.split.column and not is_named:
        return f"it is what the split is by ({data.split.by})"
    if pa.types.is_null(kind):
        raise DataError(all_missing(name))
    unfit = _unfit(kind, data) or _misfit(name, kind, data)
    if unfit and is_named:
        raise DataError(
            f"data.features: column {name!r} is named, but {unfit}: take it out of data.features, or convert it in the "
            "source"
        )
    return unfit


def _unfit(kind: pa.DataType, data: Data) -> str | None:
    if data.kind == "series" and not (is_number(kind) or pa.types.is_boolean(kind)):
        return f"its type is {kind}, and a series takes numbers: encode it in your source function"
    if is_number(kind) or is_text(kind) or pa.types.is_boolean(kind):
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return None
    return f"its type is {kind}: turn it into numbers or text with data.features.make"


def _misfit(name: str, kind: pa.DataType, data: Data) -> str | None:
    """Return why the kind that the spec gives a column cannot be made of its type."""
    declared = data.features.kinds.get(name)
    if declared == "numeric" and pa.types.is_temporal(kind):
        return f"its type is {kind}, no number: say `{name}: datetime` in data.features.kinds"
    if declared == "datetime" and pa.types.is_boolean(kind):
        return f"its type is {kind}, no time: say another kind in data.features.kinds"
    if declared == "text" and not is_text(kind):
        return f"its type is {kind}, no text: say another kind in data.features.kinds"
    return None


def _kind(name: str, kind: pa.DataType, data: Data) -> ColumnType:
    if data.kind == "series":
        return "numeric"
    guess: ColumnType = "numeric" if is_number(kind) else "categorical"
    if pa.types.is_temporal(kind):
        guess = "datetime"
    return data.features.kinds.get(name, guess)


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
