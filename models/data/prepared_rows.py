"""Reader of prepared rows: those of a split, or all in batches, with one conversion of errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models import scratch
from models.data.preparation import ROWS_FILE, SPLITS
from models.errors import DataError
from models.project_spec.reserved_columns import KEY_COLUMN, SPLIT_COLUMN
from models.sources.read import UNREADABLE

_BATCH_ROWS = 65_536
_PIECE_ROWS = 4_096
"""Rows of the file that are in memory at a time beside those that were asked for."""


def rows_of(
    folder: Path, split: str, columns: Sequence[str] | None = None, positions: np.ndarray | None = None
) -> pa.Table:
    """Return the prepared rows of one split, in their order, read a piece at a time; many lie in a file, where one may.

    Args:
        folder: The prepared folder.
        split: `train`, `validation` or `test`.
        columns: The columns to return; default: all.
        positions: The rows to return, by their positions in the split, int64 (rows,), ascending; default: all.

    Raises:
        DataError: The split does not exist, or the file is absent, cut short, or lacks a column.
    """
    if split not in SPLITS:
        raise DataError(f"got split {split!r}, expected one of {', '.join(SPLITS)}")
    with _rows_file(folder) as file:
        pieces = _pieces_of(file, SPLITS.index(split), columns, positions)
        place, num_rows = scratch.place(), file.metadata.num_rows if positions is None else len(positions)
        if place is None or num_rows <= scratch.PART:
            return pa.concat_tables(pieces)
        first = next(pieces)
        return scratch.mapped((batch for piece in pieces for batch in piece.to_batches()), first.schema, place)


def column_of(folder: Path, split: str, name: str) -> np.ndarray:
    """Return a column of numbers of the prepared rows of one split (rows,).

    Raises:
        DataError: As `rows_of`.
    """
    return scratch.numbers(rows_of(folder, split, [name]).column(0))


def split_batches(folder: Path, split: str, columns: Sequence[str], size: int) -> Iterator[pa.Table]:
    """Yield the prepared rows of one split, in their order, `size` at a time.

    Raises:
        DataError: As `rows_of`.
    """
    with _rows_file(folder) as file:
        pieces = _pieces_of(file, SPLITS.index(split), columns, None)
        waiting = next(pieces)
        for piece in pieces:
            waiting = pa.concat_tables([waiting, piece])
            while waiting.num_rows >= size:
                yield waiting.slice(0, size)
                waiting = waiting.slice(size)
        if waiting.num_rows:
            yield waiting


def spread_rows(path: Path, columns: Sequence[str], most: int) -> pa.Table:
    """Return at most `most` evenly spread rows of a Parquet file, read a batch at a time."""
    with pq.ParquetFile(path, memory_map=True) as file:
        step = max(1, -(-file.metadata.num_rows // most))
        parts, start = [], 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*columns]):
            parts.append(batch.take(pa.array(np.arange(-start % step, batch.num_rows, step))) if step > 1 else batch)
            start += batch.num_rows
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    return pa.Table.from_batches([part.select(schema.names) for part in parts], schema)


def _pieces_of(
    file: pq.ParquetFile, code: int, columns: Sequence[str] | None, positions: np.ndarray | None
) -> Iterator[pa.Table]:
    """Yield the rows of a split, a piece of the file at a time, after a table without rows."""
    selected = file.schema_arrow.names if columns is None else list(columns)
    yield file.schema_arrow.empty_table().select(selected)
    start = 0
    for batch in file.iter_batches(_PIECE_ROWS, columns=[*selected, SPLIT_COLUMN]):
        rows = pa.Table.from_batches([batch])
        rows = rows.filter(pc.equal(rows.column(SPLIT_COLUMN), code)).select(selected)
        if positions is None:
            yield rows
        else:
            first, last = np.searchsorted(positions, [start, start + len(rows)])
            yield rows.take(positions[first:last] - start)
        start += len(rows)


def units_of(folder: Path, split: str) -> np.ndarray | None:
    """Return the group or the time of each row of a split, int64 (rows,); None if rows are apart.

    Raises:
        DataError: As `rows_of`.
    """
    with _rows_file(folder) as file:
        if KEY_COLUMN not in file.schema_arrow.names:
            return None
    return column_of(folder, split, KEY_COLUMN)


def row_batches(prepared: Path) -> Iterator[pa.Table]:
    """Yield all prepared rows, some at a time.

    Raises:
        DataError: The file is absent, or cut short.
    """
    with _rows_file(prepared) as file:
        for batch in file.iter_batches(_BATCH_ROWS):
            yield pa.Table.from_batches([batch])


@contextlib.contextmanager
def _rows_file(prepared: Path) -> Iterator[pq.ParquetFile]:
    """Open the prepared rows; convert the errors of reading them to a DataError with the cure."""
    path = prepared / ROWS_FILE
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            yield file
    except (*UNREADABLE, KeyError) as error:
        raise DataError(f"{path}: not a whole Parquet file: remove {prepared} and run again") from error
