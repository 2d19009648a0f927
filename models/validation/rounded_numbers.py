"""Large whole numbers of which a float64 holds only some, so that different values become one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models import scratch
from models.kinds.task import TASKS
from models.project_spec.blocks import Data
from models.readable import as_shown, no_text
from models.sources.whole_numbers import are_large, fits_float64

MOSTLY = 0.5
"""Share of a column's values: measurements are seldom as large, hashes and long numbers of accounts always are."""


def rounded_numbers(table: pa.Table, data: Data) -> list[str]:
    """Return a message for each column in which different values fall together, or may have done so in its file.

    Args:
        table: The table as it was read.
        data: The spec's data block; columns that it drops or declares numeric are skipped.
    """
    skipped = {*data.features.drop, *(name for name, kind in data.features.kinds.items() if kind == "numeric")}
    messages = [_rounded(table.column(name), name, data) for name in table.column_names if name not in skipped]
    return [text for text in messages if text]


def _rounded(column: pa.ChunkedArray, name: str, data: Data) -> str:
    is_name = name in _names(data) or data.features.kinds.get(name) == "categorical"
    if pa.types.is_integer(column.type) and not is_name and not fits_float64(column):
        values = pc.unique(column.drop_null()).sort()
        together = np.flatnonzero(np.diff(values.cast(pa.float64(), safe=False).to_numpy()) == 0)
        if len(together):
            first, second = (values[int(together[0]) + offset].as_py() for offset in (0, 1))
            such_as = as_shown(f", such as {first} and {second}", data.show_rows, no_text)
            return (
                f"column {name!r}: {len(together):,} of {len(values):,} values become the same number as another one"
                f"{such_as}, since float64 is exact up to 2^53 only: if they name something, say "
                f"`{name}: categorical` in data.features.kinds or drop the column, else `{name}: numeric`"
            )
    if pa.types.is_float64(column.type):
        large = scratch.by_parts(column, lambda part: part.filter(are_large(part)))
        if len(large) > (0 if is_name else MOSTLY * (len(column) - column.null_count)):
            such_as = as_shown(f", such as {large[0].as_py():.0f}", data.show_rows, no_text)
            return (
                f"column {name!r}: {len(large):,} values are floats from 2^53{such_as}; if they were whole numbers "
                "that name something, different ones may be the same now: store them as texts or as integers of 64 "
                f"bits, or say `{name}: numeric` in data.features.kinds"
            )
    return ""


def _names(data: Data) -> set[str]:
    """Return the columns whose values name rows, groups or series, or are classes."""
    split_column = data.split.column if data.split.by in ("group", "hash", "random") else None
    keys = data.series_keys
    classes = data.targets if data.task is not None and TASKS[data.task].has_classes else []
    return {name for name in (data.id, *keys, split_column, *classes) if name}
