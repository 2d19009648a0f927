"""Whether a user's feature function looks at one row at a time, so that it may be called on pieces of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from models.data.clean import made_features
from models.data.hashing import hash_rows
from models.errors import UserCodeError

SAMPLE = 2000
PIECES = (1, 7, 500)
"""Sizes of the pieces that it is called on, from the start of the sample turned round."""


def is_row_wise(rows: pa.Table, reference: str, base: Path) -> bool:
    """Whether `make` gives each row of a sample the same values whatever other rows are with it, and in whatever order.

    A test, not a proof: a function that looks at other rows only where the sample has no case of it passes.

    Raises:
        UserCodeError: It fails on the sample as it stands.
    """
    sample = rows.slice(0, SAMPLE)
    whole = made_features(sample, reference, base)
    expected = hash_rows(whole, whole.column_names)[::-1]
    turned = sample.take(np.arange(sample.num_rows)[::-1])
    start = 0
    for size in (*PIECES, sample.num_rows):
        piece = turned.slice(start, size)
        if not piece.num_rows:
            break
        try:
            made = made_features(piece, reference, base)
        except UserCodeError:
            return False  # it cannot live with so few rows
        if set(made.column_names) != set(whole.column_names):
            return False
        if not np.array_equal(hash_rows(made, made.column_names), expected[start : start + piece.num_rows]):
            return False
        start = start + size if size < sample.num_rows else start
    return True
