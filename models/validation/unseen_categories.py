"""Unseen categories: values of held-out rows that are in no training row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.data.preparation import ROWS_FILE, SPLITS, Preparation
from models.inputs.record import CategoryRecord
from models.project_spec.reserved_columns import SPLIT_COLUMN

MOST_SHARE = 0.5


def unseen_categories(prepared: Path, preparation: Preparation) -> list[str]:
    """Return a message for each split and column with more than `MOST_SHARE` of its values unknown to the model.

    Args:
        prepared: The prepared folder; its rows are read a column at a time.
        preparation: The preparation of these rows.
    """
    categories = preparation.of(CategoryRecord)
    if not categories:
        return []
    path = prepared / ROWS_FILE
    splits = pq.read_table(path, columns=[SPLIT_COLUMN]).column(0)
    messages = []
    for part in categories:
        texts = pq.read_table(path, columns=[part.name]).column(0)
        for code, split in list(enumerate(SPLITS))[1:]:
            messages.append(_message(part, texts.filter(pc.equal(splits, code)).drop_null(), split))
    return [text for text in messages if text]


def _message(part: CategoryRecord, values: pa.ChunkedArray, split: str) -> str:
    num_seen = pc.sum(pc.is_in(values, value_set=pa.array(part.categories, values.type))).as_py() or 0
    unknown = len(values) - num_seen
    if unknown <= MOST_SHARE * len(values):
        return ""
    return (
        f"column {part.name!r}: {unknown:,} of {len(values):,} {split} rows hold a value that training has not, or too "
        "seldom: split another way (data.split), or leave the column out (data.features.drop)"
    )
