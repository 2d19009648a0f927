"""A column of every type that a source may have: what reads one of them must read, or refuse, all of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa

ROWS = 60


def typed_columns(rows: int = ROWS) -> pa.Table:
    """Columns by the name of their type, some values of each missing, and the target `y`."""
    at = range(rows)
    words = [["red", "green", "", None, "blue"][n % 5] for n in at]
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in at]
    columns = {
        "null": pa.nulls(rows),
        "bool": pa.array([[True, False, None][n % 3] for n in at]),
        **{
            f"int{bits}": pa.array([None if n % 9 == 0 else n % 7 for n in at], f"int{bits}")
            for bits in (8, 16, 32, 64)
        },
        "uint64": pa.array([2**63 + n * 7 % rows for n in at], pa.uint64()),  # in no order: else a number of the row
        "float16": pa.array(np.arange(rows, dtype=np.float16)),
        "float32": pa.array([n / 3 for n in at], pa.float32()),
        "float64": pa.array([float("nan") if n % 8 == 0 else n / 7 for n in at]),
        "all_nan": pa.array([float("nan")] * rows),
        "decimal": pa.array([Decimal(n) / 4 for n in at], pa.decimal128(9, 2)),
        "string": pa.array(words),
        "large_string": pa.array(words, pa.large_string()),
        "dictionary": pa.array(words).dictionary_encode(),
        "numbers_dictionary": pa.array([n % 4 for n in at]).dictionary_encode(),
        "binary": pa.array([bytes([n % 5]) for n in at]),
        "date": pa.array([date(2026, 1, 1 + n % 28) for n in at]),
        "timestamp": pa.array(moments, pa.timestamp("us", tz="UTC")),
        "time": pa.array([time(n % 24) for n in at]),
        "duration": pa.array([timedelta(minutes=n) for n in at]),
        "list": pa.array([[n] for n in at]),
        "struct": pa.array([{"a": n} for n in at]),
        "constant": pa.array(["same"] * rows),
        "y": pa.array(["yes" if n % 4 else "no" for n in at]),
    }
    return pa.table(columns)
