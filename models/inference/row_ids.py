"""Ids of prediction rows: the caller's own ids, checked to be unique, or reproducible UUIDs of version 7."""

from __future__ import annotations

import hashlib
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.errors import DataError
from models.identity.hashing import SortedHashSet, hash_values
from models.inputs.types import as_text


def row_ids(work: str, began_ms: int, first: int, count: int) -> list[str]:
    """Return ids for the rows `first` to `first + count - 1` of a job.

    The 74 bits that are otherwise random come from a hash of the job and the row, so that a row keeps its id when its
    prediction is repeated after the process was killed.

    Source: RFC 9562, section 5.7.

    Args:
        work: A unique name of the job.
        began_ms: Start of the job, milliseconds since 1970.
        first: Number of the first row.
        count: Number of rows.
    """
    return [_row_id(work, began_ms, row) for row in range(first, first + count)]


def own_ids(
    column: pa.ChunkedArray, seen: SortedHashSet, first_row: int, display_name: str, name: str
) -> pa.ChunkedArray:
    """Return the caller's row ids as text.

    Args:
        column: The id column of the caller's rows.
        seen: Hashes of the ids of earlier rows; the new ids are added.
        first_row: Number of the first row, for messages.
        display_name: Name of the rows in messages.
        name: Name of the column.

    Raises:
        DataError: An id is missing, or an earlier row has the same id.
    """
    texts = as_text(column)
    if texts.null_count:
        row = first_row + int(np.flatnonzero(pc.is_null(texts).to_numpy())[0])
        raise DataError(f"{display_name}, row {row}, column {name!r}: no id: give one to every row")
    first = seen.first_places(hash_values(texts, "id"))
    if len(first) < len(texts):
        row = int(np.setdiff1d(np.arange(len(texts)), first)[0])
        raise DataError(
            f"{display_name}, row {first_row + row}, column {name!r}: {texts[row].as_py()!r} names an earlier row too, "
            "expected an id of its own for each (labels find their prediction by it): remove the repeated rows"
        )
    return texts


def _row_id(work: str, began_ms: int, row: int) -> str:
    drawn = int.from_bytes(hashlib.blake2b(f"{work}\0{row}".encode(), digest_size=10).digest(), "big")
    value = (
        (began_ms & (1 << 48) - 1) << 80 | 7 << 76 | (drawn & 0xFFF) << 64 | 0b10 << 62 | (drawn >> 12) & (1 << 62) - 1
    )
    return str(uuid.UUID(int=value))
