"""Check that a user's feature function works row by row and without the target, because serving needs both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from models.data.clean import made_features
from models.errors import UserCodeError
from models.identity.hashing import hash_rows
from models.project_spec.blocks import Data

SAMPLE = 2000
PIECES = (1, 7, 500)
"""Row counts of the pieces that the function is called on, taken from the start of the reversed sample."""


def check_feature_function(table: pa.Table, data: Data, base: Path) -> None:
    """Refuse a `data.features.make` whose columns cannot be computed for the rows of a prediction request.

    Such rows have no target and arrive one at a time. A function that reads other rows also leaks test rows into
    training. A series is not checked: the past of its target is an input, and its rows belong together. The check calls
    the function a few times on a sample.

    Raises:
        UserCodeError: The function needs the target, or a row's features depend on it, on other rows or on chance.
    """
    reference = data.features.make
    if not reference or data.kind == "series":
        return
    sample = table.slice(0, SAMPLE)
    inputs = sample.drop_columns([name for name in data.targets if name in sample.column_names])
    cure = "rows to predict have none: make features of the other columns alone"
    try:
        alone = made_features(inputs, reference, base)
    except UserCodeError as error:
        made_features(sample, reference, base)  # raises if the function fails with the target as well
        raise UserCodeError(
            f"data.features.make {reference}: needs the target {data.target_name!r}; {cure}. Without it: {error}"
        ) from error
    whole = made_features(sample, reference, base)
    changed = _unlike(whole, alone, data)
    if changed and _unlike(whole, made_features(sample, reference, base), data):
        raise UserCodeError(
            f"data.features.make {reference}: the column {changed[0]!r} has other values at each call: compute it from "
            "the row, or draw with a fixed seed in the source function"
        )
    if changed:
        raise UserCodeError(
            f"data.features.make {reference}: the column {changed[0]!r} depends on the target {data.target_name!r}; "
            f"{cure}"
        )
    if not is_row_wise(inputs, reference, base):
        raise UserCodeError(
            f"data.features.make {reference}: what it makes of a row depends on other rows, which a served model does "
            "not see, and which lets training see the test rows: make it of the row alone, learn it of the "
            "training rows in data.features.fit, or make it of earlier rows in the source function"
        )


def _unlike(whole: pa.Table, other_table: pa.Table, data: Data) -> list[str]:
    """Return the columns of a table, targets apart, that another table lacks or has with other values."""
    other_names = set(other_table.column_names)
    return [
        name
        for name in whole.column_names
        if name not in data.targets
        and (name not in other_names or not np.array_equal(hash_rows(whole, [name]), hash_rows(other_table, [name])))
    ]


def is_row_wise(rows: pa.Table, reference: str, base: Path) -> bool:
    """Return True if `make` computes the same values for a row whatever other rows come with it, in any order.

    This is a test, not a proof: a function passes if it reads other rows only in cases that the sample lacks.

    Raises:
        UserCodeError: The function fails on the unchanged sample.
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
            featured = made_features(piece, reference, base)
        except UserCodeError:
            return False  # the function needs more rows
        if set(featured.column_names) != set(whole.column_names):
            return False
        if not np.array_equal(hash_rows(featured, featured.column_names), expected[start : start + piece.num_rows]):
            return False
        start = start + size if size < sample.num_rows else start
    return True
