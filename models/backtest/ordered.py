"""The raw rows in order of arrival, with the clock that this order gives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from models.backtest.periods import LabelClock, PeriodRule, RowRange, positions_as_times
from models.data.hashing import hash_rows, missing
from models.data.header import no_such_column
from models.data.split import times
from models.errors import DataError, UsageError
from models.project_spec.blocks import Data

_US = 1e6


@dataclass(frozen=True)
class TimeOrderedRows:
    """Rows in time order, their times, and a hash of each."""

    table: pa.Table
    clock: LabelClock
    hashes: np.ndarray
    notes: list[str] = field(default_factory=list)

    def digest(self, rows: RowRange) -> str:
        """Return a hash that identifies these rows: their values, their order, and the types of the columns."""
        digest = hashlib.sha256(str(self.table.schema.remove_metadata()).encode())
        digest.update(np.ascontiguousarray(self.hashes[rows.first : rows.stop]).tobytes())
        return digest.hexdigest()


def in_time_order(table: pa.Table, data: Data, cut: PeriodRule, delay_s: float = 0.0) -> TimeOrderedRows:
    """Put a raw table in the order of `data.split`: by its time column, or unchanged when split by position.

    Rows that never got a label are left out, except in a series, whose steps must stay evenly spaced.

    Raises:
        UsageError: The rows have no order in time, or not one that fits `cut` and `delay_s`.
        DataError: The time column is absent, has gaps, or holds text that is not a date.
    """
    if data.kind == "text":
        raise UsageError("backtest: replays tables, images and series; a text has no rows that are labelled later")
    notes = []
    if data.kind != "series":
        never = missing(_column(table, data.target, "data.target"))
        if never.any():
            notes.append(f"{int(never.sum())} rows without a label were left out")
            table = table.filter(pa.array(~never))
    if data.split.by == "time":
        moments, has_calendar = _moments(table, str(data.split.column))
        order = np.argsort(moments, kind="stable")
        table, moments = table.take(pa.array(order)), moments[order]
    elif data.split.by == "position":
        moments, has_calendar = np.arange(table.num_rows, dtype=np.float64), False
    else:
        raise UsageError(
            f"backtest: the rows have no order in time (data.split.by is {data.split.by}): name their time column, "
            "-s data.split.by=time -s data.split.column=NAME, or say -s data.split.by=position if they stand in it"
        )
    if not has_calendar:
        moments = _without_calendar(table.num_rows, cut, delay_s)
        notes.append(f"the rows have an order but no dates: {cut.text} count for 30 days")
    return TimeOrderedRows(
        table, LabelClock(moments, delay_s, has_calendar), hash_rows(table, table.column_names), notes
    )


def _without_calendar(num_rows: int, cut: PeriodRule, delay_s: float) -> np.ndarray:
    if delay_s:
        raise UsageError("--label-delay: the rows have no dates, so there is nothing to delay: leave it out")
    return positions_as_times(num_rows, cut)


def _moments(table: pa.Table, name: str) -> tuple[np.ndarray, bool]:
    """Return Unix seconds of each row and True; the plain numbers and False if the column holds no dates."""
    column = _column(table, name, "data.split.column")
    gaps = int(missing(column).sum())
    if gaps:
        raise DataError(f"data.split.column {name!r}: {gaps} rows have no time: fill or drop them in a source function")
    values = times(column, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_date = not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    return values.astype(np.float64) / (_US if is_date else 1.0), is_date


def _column(table: pa.Table, name: str, key: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise DataError(f"{key}: {no_such_column(name, table.column_names)}")
    return table.column(name)
