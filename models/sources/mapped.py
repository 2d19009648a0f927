"""A large Parquet file as a table that is mapped into memory: the system takes its pages back where memory is short."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from models import scratch
from models.scratch import ROW_GROUP, mapped
from models.sources.read import UNREADABLE, read_table

LARGE_CELLS = 1 << 24
"""Rows times columns of a table that is mapped: 128 MiB of numbers."""


def mapped_table(path: Path, large: int = LARGE_CELLS, folder: Path | None = None) -> pa.Table:
    """Return the table of a Parquet file: read if it is small, else mapped from a copy without a name.

    Cost: the copy takes what the table would in memory: 8 bytes a number.

    Args:
        path: The file.
        large: Cells from which on a table is mapped.
        folder: The folder on whose disk the copy lies; default: that of the file.

    Raises:
        DataError: Missing, cut short, no Parquet at all, or with columns that share a name.
        StoreError: The disk is full or the folder cannot be written.
    """
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            if file.metadata.num_rows * file.metadata.num_columns >= large:
                rows = file.iter_batches(ROW_GROUP, use_threads=False)
                return mapped(rows, file.schema_arrow, folder or path.parent)
    except UNREADABLE:
        pass  # the reader below says what is wrong with it
    return read_table(path)


def columns_in_place(path: Path, columns: list[str]) -> pa.Table:
    """Return some columns of a whole Parquet file, mapped where large arrays may lie on the disk."""
    place = scratch.place()
    if place is None:
        return read_table(path, columns)
    with pq.ParquetFile(path, pre_buffer=False) as file:
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        batches = (batch.select(schema.names) for batch in file.iter_batches(ROW_GROUP, columns=schema.names))
        return mapped(batches, schema, place)
