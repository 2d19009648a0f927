"""Data validation of the raw table's schema: the columns that the spec names, with their former types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from models.data.header import check_names, no_such_column
from models.errors import DataError
from models.project_spec.blocks import Data

MIN_ROWS = 10


def least_rows(data: Data) -> int:
    """Fewer rows cannot be divided; the length of a text is not its number of lines."""
    return 1 if data.kind == "text" else MIN_ROWS


def table_schema(table: pa.Table) -> list[dict[str, Any]]:
    """Name, type and number of missing values of each column, as plain data for the record."""
    return [
        {"name": field.name, "dtype": str(field.type), "nulls": table.column(field.name).null_count}
        for field in table.schema
    ]


def check_schema(schema: list[dict[str, Any]], earlier: list[dict[str, Any]], data: Data) -> None:
    """Refuse a column whose type changed since `earlier`, the last dataset accepted.

    Wider numbers (int32 to int64, whole to broken) and another string type are the same kind of column; one
    without any value is of every kind, and one that nothing reads may be of any.

    Raises:
        DataError: Names every such column with both types.
    """
    before = {column["name"]: column["dtype"] for column in earlier}
    changed = [
        f"{column['name']!r} was {before[column['name']]} and is {column['dtype']}"
        for column in schema
        if column["name"] in before
        and not _is_unread(column["name"], data)
        and not _is_same_kind(column["dtype"], before[column["name"]])
    ]
    if changed:
        raise DataError(
            f"the type of a column changed: {'; '.join(changed)}: put the source right, or, if it is meant, "
            "say the new kind in data.features.kinds and rename the column"
        )


def check_columns(table: pa.Table, data: Data, slices: Sequence[str] = ()) -> None:
    """Refuse a table without a column that the spec names, or with too few rows.

    Raises:
        DataError: Names the key of the spec, the column and the nearest one there is.
    """
    if table.num_rows < least_rows(data):
        raise DataError(f"the table has {table.num_rows} rows, expected at least {least_rows(data)}: give more data")
    check_names(table.column_names, data, slices)


def check_id(table: pa.Table, data: Data) -> None:
    """Refuse ids that do not identify rows. A row without an id is identified by its content.

    Raises:
        DataError: The column is absent, or one id names several rows.
    """
    if data.id is None:
        return
    if data.id not in table.column_names:
        raise DataError(f"data.id: {no_such_column(data.id, table.column_names)}")
    counts = table.column(data.id).drop_null().value_counts()
    shared = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(shared):
        value, count = shared[0]["values"].as_py(), shared[0]["counts"].as_py()
        raise DataError(
            f"data.id {data.id!r}: {value!r} names {count} rows ({len(shared):,} such ids), expected one row for each: "
            "drop the repeated rows in the source, or name another column"
        )


def _is_unread(name: str, data: Data) -> bool:
    """True for a dropped column that neither decides the split nor goes into columns made of others."""
    return name in data.features.drop and name not in (data.target, data.split.column) and not data.features.make


def _is_same_kind(dtype: str, before: str) -> bool:
    return "null" in (dtype, before) or _family(dtype) == _family(before)


def _family(dtype: str) -> str:
    if dtype.startswith(("int", "uint", "float", "double", "half", "decimal")):
        return "number"
    if dtype.startswith(("string", "large_string", "dictionary")):
        return "text"
    if dtype.startswith(("timestamp", "date")):
        return "date"
    return dtype.removeprefix("large_")
