"""The weights of rows: how much each counts in the loss and in the metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models import scratch
from models.data.preparation import ROWS_FILE, SPLITS
from models.data.prepared_rows import column_of
from models.errors import DataError
from models.inputs.types import as_float64
from models.project_spec.reserved_columns import WEIGHT_COLUMN


def row_weights(column: pa.ChunkedArray, name: str, codes: np.ndarray) -> np.ndarray:
    """Return the weights, 1 on average over the training rows, float64 (rows,); a missing one counts as 1 before.

    Args:
        column: The spec's `data.weight`.
        name: Its name.
        codes: The split of each row (rows,).

    Raises:
        DataError: A weight is negative or no number, or all rows of a split weigh nothing.
    """
    values = raw_weights(column, name)
    for code, split in enumerate(SPLITS):
        of_split = scratch.chosen(values, codes == code)
        if len(of_split) and not of_split.any():
            consequence = "nothing can be learnt" if split == "train" else "no metric can be measured"
            raise DataError(
                f"data.weight {name!r}: all {len(of_split):,} {split} rows weigh 0, so {consequence}: expected some "
                "weight in "
                "each split: correct the weights in the source, split another way (data.split), or name another column"
            )
    mean = float(scratch.chosen(values, codes == 0).mean())
    return scratch.computed(lambda part: part / mean, values)


def raw_weights(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return the weights as the source has them, float64 (rows,); a missing one counts as 1.

    Raises:
        DataError: A weight is negative or no number.
    """
    values = as_float64(column, name)
    values = scratch.computed(lambda part: np.where(np.isnan(part), 1.0, part), values)
    if len(values) and values.min() < 0:
        raise DataError(
            f"data.weight {name!r}: got {values.min():g}, expected weights >= 0: correct them in the source"
        )
    return values


def weighing_examples(prepared: Path, split: str, num: int) -> np.ndarray:
    """Return the positions of the `num` examples of a split that weigh anything, int64 (example,), ascending.

    A row of weight 0 counts as absent: whoever samples, counts or shows examples does so among these.
    """
    weights = weights_of(prepared, split)
    return np.arange(num) if weights is None else np.flatnonzero(weights > 0)


def weights_of(prepared: Path, split: str) -> np.ndarray | None:
    """Return the weights of the rows of a split, float64 (rows,); None where the spec names no weights."""
    if WEIGHT_COLUMN not in pq.read_schema(prepared / ROWS_FILE).names:
        return None
    return column_of(prepared, split, WEIGHT_COLUMN)
