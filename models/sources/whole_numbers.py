"""Whole numbers beyond 2^53, of which a float64 holds only some: they stay what they are wherever they are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from models import scratch

MOST_EXACT = 2**53
"""A float64 holds each whole number up to here; beyond, it rounds."""
_DIGITS = r"^[0-9]+$"
_ZERO_FIRST, _BEYOND_FLOAT64 = r"^0[0-9]+$", r"^[0-9]{16,}$"
_SHORTEST_CODE = 3
"""Digits; 07 is a month or an hour rather than a code."""


def fits_float64(whole: pa.ChunkedArray) -> bool:
    """Return True if float64 holds each of a column of integers exactly."""
    try:
        for chunk in whole.chunks:
            chunk.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def are_codes(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return True for digits of one length, of which some begin with a zero: 05123 is a place, and no number."""
    length = pc.min_max(pc.utf8_length(texts)).as_py()
    return (
        length["min"] == length["max"] is not None
        and length["min"] >= _SHORTEST_CODE
        and bool(pc.all(pc.match_substring_regex(texts, _DIGITS)).as_py())
        and bool(pc.any(pc.match_substring_regex(texts, _ZERO_FIRST)).as_py())
    )


def floats_of(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers as float64; decimals by their texts, since Arrow's cast makes 7.140000000000001 of 7.14."""
    if pa.types.is_decimal(numbers.type):
        numbers = numbers.cast(pa.string())
    return numbers.cast(pa.float64(), safe=False)


def are_large(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which floats are so large that they may stand for several whole numbers (row,), null for missing."""
    return pc.greater_equal(pc.abs(values), float(MOST_EXACT))


def with_unsigned(table: pa.Table, texts_of: Callable[[Sequence[str]], pa.Table]) -> pa.Table:
    """Replace columns of floats that are whole numbers from 2^63 to 2^64, such as hashes, by unsigned integers.

    The reader of CSV takes them for floats, in which different ones fall together.

    Args:
        table: As it was read.
        texts_of: Reads some columns again, as texts.
    """
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    large = [name for name in floats if pc.any(are_large(table.column(name))).as_py()]
    for name, column in zip(large, texts_of(large).columns if large else (), strict=True):
        if not pc.all(pc.match_substring_regex(column, _DIGITS)).as_py():
            continue
        try:
            whole = column.cast(pa.uint64())
        except pa.ArrowInvalid:  # beyond 2^64
            continue
        table = table.set_column(table.column_names.index(name), name, whole)
    return table


def with_whole_ids(table: pa.Table, id_column: str | None, texts_of: Callable[[Sequence[str]], pa.Table]) -> pa.Table:
    """Replace a column of ids that was read as numbers by texts if an id would lose digits: `00001`, or 25 digits.

    Numbers that are no digits alone keep their form: 1001.0 is 1001.

    Args:
        table: As it was read.
        id_column: The column of ids; None leaves the table as it is.
        texts_of: Reads some columns again, as texts.
    """
    if id_column is None or id_column not in table.column_names:
        return table
    numbers = table.column(id_column)
    if not (pa.types.is_integer(numbers.type) or pa.types.is_floating(numbers.type)):
        return table
    texts = texts_of([id_column]).column(0)
    loses = pc.match_substring_regex(texts, _ZERO_FIRST)
    if pa.types.is_floating(numbers.type):
        loses = pc.or_(loses, pc.match_substring_regex(texts, _BEYOND_FLOAT64))
    if not pc.any(loses).as_py():
        return table
    texts = scratch.by_parts(texts, lambda part: pc.replace_substring_regex(part, r"^([0-9]+)\.0*$", r"\1"))
    return table.set_column(table.column_names.index(id_column), id_column, texts)


def as_frame(table: pa.Table, whole: pa.Table | None = None) -> Any:
    """Return a table as a pandas DataFrame.

    Integers with missing values become floats there, as pandas has it, unless they are too large: then they become
    pandas' own nullable integers.

    Args:
        table: The rows.
        whole: The table of which these are some rows; its missing values decide. Default: `table`.
    """
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        all_values = column if whole is None else whole.column(name)
        if not (pa.types.is_integer(column.type) and all_values.null_count):
            continue
        if column.type in nullable and not fits_float64(all_values):
            frame[name] = column.to_pandas(types_mapper=nullable.get)
        elif not column.null_count:
            frame[name] = frame[name].astype("float64")
    return frame
