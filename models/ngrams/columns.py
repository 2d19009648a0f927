"""Text columns of tables: which columns hold texts, and the columns that hold their features."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.ngrams.vocabulary import WITHOUT_SPACES

FEWEST_ROWS = 50
LOOKED_AT = 10_000
LEAST_DIFFERENT = 0.5
LEAST_WORDS = 3.0
LEAST_CHARACTERS = 10.0


def holds_texts(values: pa.ChunkedArray) -> bool:
    """Return True if a column of strings reads like texts, not like categories, codes or ids.

    More than half of at least `FEWEST_ROWS` values differ, and they have three words on average; in scripts without
    spaces, ten characters.
    """
    present = values.drop_null().slice(0, LOOKED_AT)
    if len(present) < FEWEST_ROWS or pc.count_distinct(present).as_py() <= LEAST_DIFFERENT * len(present):
        return False
    words = pc.add(pc.count_substring_regex(pc.utf8_trim_whitespace(present), r"\s+"), 1)
    if pc.mean(words).as_py() >= LEAST_WORDS:
        return True
    dense = pc.count_substring_regex(present, f"[{WITHOUT_SPACES}]")
    return bool(pc.mean(dense).as_py() >= LEAST_CHARACTERS)


def plain_texts(column: pa.ChunkedArray) -> list[str]:
    """Return a text column as Python texts, "" for missing."""
    texts: list[str] = pc.fill_null(column.cast(pa.string()), "").to_pylist()
    return texts


def feature_column(features: np.ndarray) -> pa.Array:
    """Return features, float32 (row, feature), as one column of lists."""
    flat = pa.array(np.ascontiguousarray(features, np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, features.shape[1])


def feature_matrix(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return the column of `feature_column` as float32 (row, feature)."""
    parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
    flat: np.ndarray = np.concatenate([np.zeros(0, np.float32), *parts])
    return flat.reshape(-1, width)
