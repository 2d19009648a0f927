"""Large tables as files that are mapped into memory: the system takes their pages back where memory is short.

The files have no name, so nothing is left of them when their process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.files import storing
from models.sources.read import ROW_GROUP, UNREADABLE, read_table

LARGE_CELLS = 1 << 24
"""Rows times columns of a table that is mapped: 128 MiB of numbers."""

MANY_ROWS = 1 << 19
"""Rows from which on a column has a file of its own."""


class Scratch(NamedTuple):
    """Where the columns that are made of a table lie.

    Attributes:
        folder: The folder on whose disk columns of at least `rows` rows lie, in files without a name; None: in memory.
        rows: Fewest rows of such a column.
    """

    folder: Path | None = None
    rows: int = MANY_ROWS

    def column(self, values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Return the column from where it lies.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        if self.folder is None or len(values) < self.rows:
            return values
        table = pa.table({"": values})
        return mapped(iter(table.to_batches(ROW_GROUP)), table.schema, self.folder).column(0)

    def filtered(self, table: pa.Table, mask: np.ndarray) -> pa.Table:
        """Return the rows of a table for which a mask is True (rows,), from where they lie.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        if self.folder is None or table.num_rows < self.rows:
            return table.filter(pa.array(mask))
        parts = (
            batch
            for start in range(0, table.num_rows, ROW_GROUP)
            for batch in table.slice(start, ROW_GROUP).filter(pa.array(mask[start : start + ROW_GROUP])).to_batches()
        )
        return mapped(parts, table.schema, self.folder)


IN_MEMORY = Scratch()


def mapped_table(path: Path, large: int = LARGE_CELLS, folder: Path | None = None) -> pa.Table:
    """Return the table of a Parquet file: read if it is small, else mapped from a copy.

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


def mapped(batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path) -> pa.Table:
    """Return the rows of some batches as a table that is mapped from a file without a name.

    Args:
        batches: The rows; they are written one batch after the other.
        schema: Of all batches.
        folder: The folder on whose disk the file lies.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    with storing(folder), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
        with pa.ipc.new_stream(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        with pa.memory_map(f"/dev/fd/{file.fileno()}") as pages:  # keeps no descriptor open, unlike Python's mmap
            return pa.ipc.open_stream(pages).read_all()
