"""Gaps as inputs: of the columns of numbers and times of which some training rows have no value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from models.inputs.gap.record import GapInput
from models.inputs.raw_rows import KindRows, LearntInputs, RawRows, Tensors
from models.inputs.record import NUMBERS, LearntFiles

FEWEST_ROWS = 10
"""Training rows without a value, and with one, below which nothing can be learnt of a gap."""


def _fit(names: Sequence[str], rows: RawRows, learnt: LearntInputs) -> list[GapInput]:
    """Return the gaps of the columns that were learnt before; they have no columns of their own, and `names` is empty.

    Nets of series see a window of steps, whose gaps are filled.
    """
    del names
    taken = set(learnt.prepared)
    gaps = [
        GapInput(name=f"{part.name} is missing", of=part.name)
        for part in learnt.parts
        if part.form in NUMBERS and rows.data.kind != "series" and _speaks(learnt.prepared[part.name], rows.train)
    ]
    return [gap for gap in gaps if gap.name not in taken]


def _speaks(values: pa.Array | pa.ChunkedArray, train: np.ndarray) -> bool:
    missing = int(np.isnan(values.to_numpy()[train]).sum())
    return FEWEST_ROWS <= missing <= int(train.sum()) - FEWEST_ROWS


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
