"""Values of databases as plain Arrow types: exact, or refused by the name of their column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError, one_line

_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800
"""The seconds since 1970 of the first year and after the last one that Python's times can hold."""
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MOST_DIGITS = 76


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    """Return the decimal type of so many digits, `scale` of them behind the point; None if Arrow has none."""
    precision = max(precision, scale, 1)
    if scale < 0 or precision > MOST_DIGITS:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def refused(name: str, kind: str, cast: str) -> DataError:
    """Return the error of a column of a type that cannot be read exactly, with what to write in the query."""
    return DataError(f"column {name!r} is {kind}, which no model reads as it is: write {cast} as {name} in the query")


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the types of a schema.

    Raises:
        DataError: Names the column of which a value does not fit, or is an infinite time.
    """
    columns = [_plain(batch.column(place), field) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = field.type
    _refuse_infinite(column, field)
    if column.type == kind:
        return column
    try:
        if pa.types.is_decimal(kind) and pa.types.is_string(column.type):
            return _decimals(column, field)
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"column {field.name!r}: a value does not fit {kind}, the type of the rows before it "
            f"({one_line(error, 120)}): cast it in the query"
        ) from error


def _decimals(texts: pa.Array, field: pa.Field) -> pa.Array:
    lower = pc.utf8_lower(texts)
    if pc.any(pc.match_substring(lower, "inf")).as_py():
        raise DataError(
            f"column {field.name!r} holds infinity, which no decimal is: write nullif({field.name}, 'Infinity') as "
            f"{field.name} in the query"
        )
    is_nan = pc.equal(lower, "nan")
    if pc.any(is_nan).as_py():
        texts = pc.if_else(is_nan, pa.scalar(None, pa.string()), texts)
    return texts.cast(field.type)


def _refuse_infinite(column: pa.Array, field: pa.Field) -> None:
    kind = column.type
    if pa.types.is_timestamp(kind):
        numbers, per_second = column.view(pa.int64()), float(_UNITS[kind.unit])
    elif pa.types.is_date32(kind):
        numbers, per_second = column.view(pa.int32()), 1 / 86_400
    else:
        return
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and not (_YEAR_1 * per_second <= ends["min"] and ends["max"] < _YEAR_10000 * per_second):
        raise DataError(
            f"column {field.name!r} holds infinity, or a time outside the years 1 to 9999: leave such rows out of the "
            "query, or write nullif(...)"
        )
