"""Gaps as inputs: of the columns of numbers and times of which some training rows have no value."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa

from models.inputs.gap.record import GapInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import LearntFiles

FEWEST_ROWS = 10
"""Training rows without a value, and with one, below which nothing can be learnt of a gap."""


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[GapInput]:
    """Return the gaps of the columns that were learnt before; they have no columns of their own, and `names` is empty.

    Columns that are missing in the same training rows, as those of one joined table, have one gap.
    """
    del names
    gaps: dict[bytes, GapInput] = {}
    numbers = {name: column for name, column in learnt.prepared.items() if pa.types.is_floating(column.type)}
    for name, column in numbers.items():
        missing = np.isnan(column.to_numpy())[rows.train]
        if is_informative(missing):
            gaps.setdefault(sha256(missing).digest(), GapInput(name=f"{name} is missing", of=name))
    return [gap for gap in gaps.values() if gap.name not in learnt.prepared]


def is_informative(missing: np.ndarray) -> bool:
    """Return whether something can be learnt of a column's gaps, by whether it is missing in each training row."""
    return bool(FEWEST_ROWS <= np.count_nonzero(missing) <= len(missing) - FEWEST_ROWS)


def _values(column: pa.ChunkedArray, part: GapInput) -> pa.ChunkedArray:
    del part
    return column


def _encode(rows: pa.Table, parts: Sequence[GapInput], files: LearntFiles) -> Tensors:
    del files
    gaps = [np.isnan(rows.column(part.of).to_numpy()) for part in parts]
    return {"numeric": np.stack(gaps, axis=1).astype(np.float32)}


ROWS = KindRows(
    fit=_fit,
    values=_values,
    encode=_encode,
)
