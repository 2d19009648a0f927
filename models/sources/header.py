"""The names of a file's columns, without its rows."""

from __future__ import annotations

from pathlib import Path

from models.sources.delimiter import PARQUET, SUFFIXES, csv_rows
from models.sources.packed import delimiter_of, first_bytes, suffix_of


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
