"""Data cleaning: drops raw rows that cannot be used, and adds the columns of the user's feature function."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from models import scratch
from models.data.header import no_such_column
from models.errors import DataError, UserCodeError
from models.identity.hashing import equal_runs, hash_rows, missing
from models.inputs.types import as_text, is_text
from models.project_spec import references
from models.project_spec.blocks import Data
from models.sources.read import read_source
from models.sources.whole_numbers import as_frame

NO_TARGET, REPEATED = "without a target", "equal to an earlier row in every column"


def usable_rows(table: pa.Table, data: Data, columns: list[str] | None = None) -> tuple[pa.Table, np.ndarray]:
    """Drop rows without a target and, with `data.deduplicate`, rows equal to an earlier row in every column.

    A series keeps rows without a target, because its steps must stay evenly spaced.

    Args:
        table: The raw table.
        data: The spec's data block.
        columns: The columns to return; default: all. Repeated rows are always detected over all columns.

    Returns:
        The remaining rows, in their order, and the raw position of each, int64 (rows,).

    Raises:
        DataError: No row has a target.
    """
    remains = ~_lacking(table, data.needed_targets)
    if not remains.any():
        raise DataError(
            f"data.target {data.target_name!r} has no value at all in {table.num_rows} rows: name another column"
        )
    if data.deduplicate:
        answered = scratch.positions_of(remains)
        for order, starts in equal_runs(scratch.at(hash_rows(table, table.column_names), answered)):
            remains[answered[order[starts != np.arange(len(order))]]] = False
    table = table.select(columns or table.column_names)
    return table if remains.all() else scratch.chosen_rows(table, remains), scratch.positions_of(remains)


def dropped_rows(table: pa.Table, data: Data, remaining: np.ndarray) -> dict[str, int]:
    """Count the rows that `usable_rows` dropped, by reason; `remaining` are the positions that it returned."""
    num_unanswered = int(_lacking(table, data.needed_targets).sum())
    counts = {NO_TARGET: num_unanswered, REPEATED: table.num_rows - num_unanswered - len(remaining)}
    return {reason: count for reason, count in counts.items() if count}


def unanswered(table: pa.Table, data: Data) -> np.ndarray:
    """Return True where a row lacks a target, or one of several, bool (rows,): null, NaN or empty text."""
    return _lacking(table, data.targets)


def _lacking(table: pa.Table, targets: Sequence[str]) -> np.ndarray:
    lacks = np.zeros(table.num_rows, dtype=bool)
    for name in targets:
        column = table.column(name)
        lacks |= missing(as_text(column) if is_text(column.type) else column)
    return lacks


def made_features(table: pa.Table, reference: str, base: Path) -> pa.Table:
    """Return the table with the columns that the user's function `make(frame) -> frame` adds to it.

    Raises:
        UserCodeError: The function raised, returned no data frame, or changed the number or the order of the rows.
    """
    function = references.resolve(reference, base)
    frame = as_frame(table)
    featured = references.call(function, reference, frame)
    if not hasattr(featured, "columns") or not hasattr(featured, "index"):
        raise UserCodeError(
            f"data.features.make {reference}: got a {type(featured).__name__}, expected the pandas DataFrame with more "
            "columns: end it with `return frame`"
        )
    if len(featured) != table.num_rows or not np.array_equal(np.asarray(featured.index), np.arange(table.num_rows)):
        raise UserCodeError(
            f"data.features.make {reference}: got {len(featured)} rows, expected the {table.num_rows} of its argument "
            "in "
            "the same order: drop or sort rows in a source function instead"
        )
    lost = [name for name in table.column_names if name not in featured.columns]
    if lost:
        raise UserCodeError(
            f"data.features.make {reference}: {no_such_column(lost[0], [str(name) for name in featured.columns])}: "
            "keep "
            "every raw column and leave it out with data.features.drop"
        )
    try:
        return _as_they_came(read_source(featured, display_name=f"data.features.make {reference}"), table.schema)
    except DataError as error:
        raise UserCodeError(str(error)) from error


def _as_they_came(featured: pa.Table, source_schema: pa.Schema) -> pa.Table:
    """Cast integer columns back to integers: pandas turns an integer column with a missing value into floats."""
    types = {field.name: field.type for field in source_schema}
    for position, field in enumerate(featured.schema):
        before = types.get(field.name)
        if before is not None and pa.types.is_integer(before) and pa.types.is_floating(field.type):
            with contextlib.suppress(pa.ArrowInvalid):  # the function turned them into fractions
                featured = featured.set_column(position, field.name, featured.column(position).cast(before))
    return featured
