"""Data validation of the raw table's schema: the columns that the spec names, with their former types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.data.header import check_names, no_such_column
from models.errors import DataError
from models.identity.hashing import equal_runs, hash_values
from models.inputs.types import is_number
from models.kinds.data_kind import PerDataKind
from models.project_spec.blocks import Data

MIN_ROWS = 10
_LEAST_ROWS: PerDataKind[int] = {"table": MIN_ROWS, "image": MIN_ROWS, "series": MIN_ROWS, "text": 1}


def least_rows(data: Data) -> int:
    """Return the smallest number of rows that can be split; 1 for text, for its length is not its number of lines."""
    return _LEAST_ROWS[data.kind]


def table_schema(table: pa.Table) -> list[dict[str, Any]]:
    """Return name, type and number of missing values of each column as plain data, for the dataset record."""
    return [
        {"name": field.name, "dtype": str(field.type), "nulls": table.column(field.name).null_count}
        for field in table.schema
    ]


def check_schema(schema: list[dict[str, Any]], earlier: list[dict[str, Any]], data: Data) -> None:
    """Refuse a column whose type changed since `earlier`, the schema of the last dataset that was accepted.

    Number types of another width (int32 and int64, integer and float) and different string types count as equal. A
    column without any value fits every type. A column that nothing reads may change its type. Ids may be numbers or
    text: they are text from the first on that a number cannot hold, such as 00001.

    Raises:
        DataError: Names every such column with both types.
    """
    before = {column["name"]: column["dtype"] for column in earlier}
    changed = [
        f"{column['name']!r} was {before[column['name']]} and is {column['dtype']}"
        for column in schema
        if column["name"] in before
        and not _is_unread(column["name"], data)
        and not _are_ids(column["name"], (column["dtype"], before[column["name"]]), data)
        and not _is_same_kind(column["dtype"], before[column["name"]])
    ]
    if changed:
        raise DataError(
            f"the type of a column changed: {'; '.join(changed)}: put the source right, or, if it is meant, "
            "say the new kind in data.features.kinds and rename the column"
        )


def check_columns(table: pa.Table, data: Data, slices: Sequence[str] = ()) -> None:
    """Refuse a table that lacks a column which the spec names, that has too few rows, or whose series are no numbers.

    Raises:
        DataError: Names the key of the spec, the column and, if it is missing, the column with the nearest name.
    """
    if table.num_rows < least_rows(data):
        raise DataError(f"the table has {table.num_rows} rows, expected at least {least_rows(data)}: give more data")
    check_names(table.column_names, data, slices)
    check_series_types({field.name: field.type for field in table.schema}, data)


def check_series_types(types: Mapping[str, pa.DataType], data: Data) -> None:
    """Refuse a target of series that is no number, or a column known beforehand that is neither number nor boolean.

    Args:
        types: The types of the columns by name; one that is absent passes.
        data: The spec's data block.

    Raises:
        DataError: Names the key of the spec, the column and its type.
    """
    named = {"data.target": data.past_targets, "data.window.known_future": data.known_future}
    for key, columns in named.items():
        takes_flags = key != "data.target"
        for name in columns:
            kind = types.get(name, pa.float64())
            if not (is_number(kind) or (takes_flags and pa.types.is_boolean(kind))):
                expected = "numbers or booleans" if takes_flags else "numbers"
                raise DataError(f"{key}: column {name!r} is {kind}, expected {expected}: convert it in the source")


def check_id(table: pa.Table, data: Data) -> None:
    """Refuse an id column in which two rows have the same id. Rows with a missing id are identified by their values.

    Raises:
        DataError: The column is absent, or several rows have the same id.
    """
    if data.id is None:
        return
    if data.id not in table.column_names:
        raise DataError(f"data.id: {no_such_column(data.id, table.column_names)}")
    ids, again = table.column(data.id), []
    for order, starts in equal_runs(hash_values(ids, data.id)):
        repeats = np.flatnonzero(starts != np.arange(len(order)))
        again.append(order[np.union1d(repeats, starts[repeats])])
    counts = ids.take(pa.array(np.sort(np.concatenate(again)))).drop_null().value_counts()
    shared = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(shared):
        value, count = shared[0]["values"].as_py(), shared[0]["counts"].as_py()
        raise DataError(
            f"data.id {data.id!r}: {value!r} names {count} rows ({len(shared):,} such ids), expected one row for each: "
            "drop the repeated rows in the source, or name another column"
        )


def _is_unread(name: str, data: Data) -> bool:
    """Return True for a dropped column that has no other role in the spec and is no input of `features.make`."""
    read = [*data.targets, data.split.column, *data.known_future]
    return name in data.features.drop and name not in read and not data.features.make


def _are_ids(name: str, dtypes: Sequence[str], data: Data) -> bool:
    return name == data.id and {_family(dtype) for dtype in dtypes} <= {"number", "text"}


def _is_same_kind(dtype: str, before: str) -> bool:
    return "null" in (dtype, before) or _family(dtype) == _family(before)


def _family(dtype: str) -> str:
    dtype = dtype.removeprefix("dictionary<values=")  # of a dataset from before categories were read as their values
    if dtype.startswith(("int", "uint", "float", "double", "half", "decimal")):
        return "number"
    if dtype.startswith(("string", "large_string")):
        return "text"
    if dtype.startswith(("timestamp", "date")):
        return "date"
    return dtype.removeprefix("large_")
