"""The names of a file's columns and its first values, without its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from models.sources.delimiter import PARQUET, SUFFIXES, csv_rows, delimiter_of, first_bytes, suffix_of

if TYPE_CHECKING:
    import pyarrow as pa


def header_of(path: Path) -> list[str] | None:
    """Return the column names of a CSV or Parquet file; None for other files and for an incomplete file.

    Raises:
        OSError: The file cannot be read.
    """
    if suffix_of(path) in PARQUET:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return list(pq.read_schema(path).names)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
    if suffix_of(path) not in SUFFIXES:
        return None
    rows = csv_rows(first_bytes(path).decode("utf-8-sig", errors="replace"), delimiter_of(path))
    names = next(rows, None)
    return names if next(rows, None) is not None else None


def first_values(path: Path, column: str) -> pa.ChunkedArray | None:
    """Return the first values of a column of a CSV or Parquet file; None if they cannot be read."""
    from models.sources.read import UNREADABLE
    from models.sources.row_batches import first_rows

    try:
        rows = first_rows(path, [column])
    except UNREADABLE:
        return None
    return None if rows is None else rows.column(0)
