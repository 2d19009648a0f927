"""Unseen categories: values of held-out rows that are in no training row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.data.preparation import ROWS_FILE, SPLITS, Preparation
from models.inputs.record import CategoryRecord
from models.project_spec.reserved_columns import SPLIT_COLUMN
from models.scratch import ROW_GROUP

MOST_SHARE = 0.5


def unseen_categories(prepared: Path, preparation: Preparation) -> list[str]:
    """Return a message for each split and column with more than `MOST_SHARE` of its values unknown to the model.

    Args:
        prepared: The prepared folder; its rows are read in parts, a column at a time.
        preparation: The preparation of these rows.
    """
    messages = []
    for part in preparation.of(CategoryRecord):
        counts = _counts(prepared / ROWS_FILE, part)
        for split, (num_values, unknown) in list(zip(SPLITS, counts.tolist(), strict=True))[1:]:
            if unknown > MOST_SHARE * num_values:
                messages.append(
                    f"column {part.name!r}: {unknown:,} of {num_values:,} {split} rows hold a value that training has "
                    "not, or too seldom: split another way (data.split), or leave the column out (data.features.drop)"
                )
    return messages


def _counts(path: Path, part: CategoryRecord) -> np.ndarray:
    """Return how many rows of each split have a value, and how many one that is no category: int64 (split, 2)."""
    counts = np.zeros((len(SPLITS), 2), dtype=np.int64)
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(ROW_GROUP, columns=[SPLIT_COLUMN, part.name], use_threads=False):
            texts = batch.column(part.name)
            known = pc.is_in(texts, value_set=pa.array(part.categories, texts.type)).to_numpy(zero_copy_only=False)
            for code in range(len(SPLITS)):
                rows = (batch.column(SPLIT_COLUMN).to_numpy() == code) & texts.is_valid().to_numpy(zero_copy_only=False)
                counts[code] += np.count_nonzero(rows), np.count_nonzero(rows & ~known)
    return counts
