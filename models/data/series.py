"""A series: rows in time order, and the examples that windows cut from it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from models.data.hashing import missing
from models.data.split import times
from models.errors import DataError
from models.project_spec.blocks import Data, Window

NO_SPLIT = -1


def time_order(table: pa.Table, data: Data) -> np.ndarray:
    """Return row indices in time order, int64 (rows,).

    Raises:
        DataError: Two rows have the same time.
    """
    name = str(data.split.column)
    if name not in table.column_names:
        raise DataError(f"data.split.column: no column {name!r} in the data")
    values = times(table.column(name), name)
    order = np.argsort(values, kind="stable")
    repeated = np.flatnonzero(np.diff(values[order]) == 0)
    if len(repeated):
        moment = table.column(name)[int(order[repeated[0]])].as_py()
        raise DataError(
            f"data.split.column {name!r}: {len(repeated)} rows share their time with another, first {moment}, expected "
            "one row for each step: a file holds one series; aggregate or choose one in the source"
        )
    return order


def example_splits(codes: np.ndarray, table: pa.Table, data: Data) -> np.ndarray:
    """Return the split of each row as a target; -1 if its window is incomplete, it is off the stride, or it is missing.

    Raises:
        DataError: The series is shorter than one window.
    """
    window = data.window
    assert window is not None  # the spec of a series has one
    first = first_target(window)
    if first >= len(codes):
        raise DataError(
            f"data.window: one example spans {first + 1} steps (length {window.length}, horizon {window.horizon}), but "
            f"the series has {len(codes)}: give more data, or a shorter window"
        )
    steps = np.arange(len(codes)) - first
    usable = (steps >= 0) & (steps % window.stride == 0) & ~missing(table.column(data.target))
    examples: np.ndarray = np.where(usable, codes, NO_SPLIT).astype(np.int8)
    return examples


def first_target(window: Window) -> int:
    """Return the first row that can be a target: a whole window and the horizon lie before it."""
    return window.length - 1 + window.horizon
