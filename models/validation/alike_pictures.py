"""Pictures that are equal and yet have different targets: a file that lies in the folders of two classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

_MOST_SHOWN = 2


def alike_pictures(table: pa.Table, column: str, targets: Sequence[str], names: Sequence[str] = ()) -> list[str]:
    """Return a message if equal pictures have different targets.

    Args:
        table: The rows, with pictures as plain bytes.
        column: The column of pictures.
        targets: The columns that are predicted.
        names: What people call each picture, such as its path; default: the number of its row.

    Cost: a hash of each picture: 1 s for 100,000 of 64 x 64 x 3.
    """
    if not {column, *targets} <= {*table.column_names}:
        return []
    first: dict[bytes, int] = {}
    rows = table.select(list(targets))
    pairs = []
    for row, picture in enumerate(value for chunk in table.column(column).chunks for value in chunk):
        place = first.setdefault(hashlib.sha256(picture.as_buffer()).digest(), row) if picture.is_valid else row
        if place != row and rows.slice(place, 1) != rows.slice(row, 1):
            pairs.append((place, row))
    if not pairs:
        return []
    shown = "; ".join(
        " and ".join(names[row] if names else f"row {row + 1}" for row in pair) for pair in pairs[:_MOST_SHOWN]
    )
    return [f"{len(pairs):,} pictures equal another that has another target, such as {shown}: keep the right one"]
