"""A sample of a table's rows, in memory that does not grow with the table: the first rows, and some from all over it.

A table that is small is read whole.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.errors import DataError
from models.sources.delimiter import PARQUET, SUFFIXES
from models.sources.folders import data_files, partition_of, partition_types, with_partitions
from models.sources.header import header_of
from models.sources.packed import delimiter_of, is_packed, open_unpacked, split_part, suffix_of
from models.sources.read import UNREADABLE, first_line, read_source, with_plain_types
from models.sources.readers.decimal_commas import decimal_commas
from models.sources.row_batches import concatenated
from models.sources.whole_numbers import are_codes

CELLS = 6_000_000
"""Values of a sample of Parquet."""
HEAD_BYTES, CHUNK_BYTES, CHUNKS = 32 << 20, 1 << 20, 24
"""Of a text file: its beginning, and some parts of the rest."""
LINE_BYTES = 4 << 20
"""Of a line, at most: what the reader of large files takes."""
MOST_FILES = 16
"""Files of a folder that are looked at."""
_SEED = 7
_LINES = (*SUFFIXES, ".jsonl", ".ndjson")


class Written(NamedTuple):
    """Columns of a CSV that look like other numbers than they are; a sample has them as texts.

    Attributes:
        codes: Digits of one length that begin with a zero in some rows, such as 05123.
        commas: Numbers with decimal commas.
    """

    codes: Sequence[str] = ()
    commas: Sequence[str] = ()


_PLAIN = Written()


class TableSample(NamedTuple):
    """Rows of a table.

    Attributes:
        table: The rows, in their order.
        num_rows: Of the whole table; of a text file an estimate, and None if it is compressed.
        num_first: How many of the rows are the first of the table, without a gap.
        written: What its cells of a CSV say.
    """

    table: pa.Table
    num_rows: int | None
    num_first: int
    written: Written = _PLAIN

    @property
    def is_whole(self) -> bool:
        """Whether it holds all rows."""
        return self.num_first == self.num_rows


def whole(table: pa.Table, written: Written = _PLAIN) -> TableSample:
    """Return a table as its own sample."""
    return TableSample(table, table.num_rows, table.num_rows, written)


def sample_of(path: Path) -> TableSample:
    """Return a sample of a file's or folder's rows; the same one at each call.

    Raises:
        DataError: It cannot be read.
    """
    files = data_files(path)
    if suffix_of(files[0]) in PARQUET:
        sizes = [_footer(file) for file in files[:1000]]
        num_rows = sum(size.num_rows for size in sizes) * len(files) // len(sizes)
        if num_rows * sizes[0].num_columns <= CELLS:
            return whole(read_source(path))
        parts = _of_files(path, files, max(1, CELLS // sizes[0].num_columns))
        return TableSample(concatenated(parts), num_rows, parts[0].num_rows)
    num_bytes = sum(split_part(file).file.stat().st_size for file in files)
    written = _written(files[0]) if suffix_of(files[0]) in SUFFIXES else _PLAIN
    if suffix_of(files[0]) not in _LINES or num_bytes * (8 if is_packed(files[0]) else 1) <= HEAD_BYTES:
        return whole(read_source(path, na_is_text=written.codes, as_text=written.commas), written)
    return _of_text(path, files, num_bytes, written)


def _written(path: Path) -> Written:
    """Return which columns look like other numbers than they are in the first rows of a CSV."""
    with open_unpacked(path) as file:
        head = file.read(CHUNK_BYTES)
        is_whole = not file.read(1)
    with contextlib.suppress(DataError):  # whoever reads the whole file says what is wrong
        head = head if is_whole else _whole_lines(head, path)
        texts = _parsed(path, head, Written(commas=header_of(path) or ()))
        codes = [name for name, column in zip(texts.column_names, texts.columns, strict=True) if are_codes(column)]
        return Written(codes, decimal_commas(texts, delimiter_of(path)))
    return _PLAIN


def _of_text(path: Path, files: Sequence[Path], num_bytes: int, written: Written) -> TableSample:
    """Return a sample of text files: the beginnings of some, and lines from all over them."""
    chosen = _chosen(files)
    share = HEAD_BYTES // len(chosen)
    parts = [(file, *_of_lines(file, share, written)) for file in chosen]
    _, first, bytes_of_row, _ = parts[0]
    tables = [table for _, head, _, rest in parts for table in (head, rest) if table is not None]
    places = [file for file, _, _, rest in parts for _ in range(1 if rest is None else 2)]
    folder = path if path.is_dir() else None
    num_rows = None if is_packed(files[0]) else max(first.num_rows + 1, round(num_bytes / bytes_of_row))
    return TableSample(concatenated(_with_partitions(folder, files, places, tables)), num_rows, first.num_rows, written)


def _of_lines(path: Path, share: int, written: Written) -> tuple[pa.Table, float, pa.Table | None]:
    """Return the first rows of a text file, the bytes of one, and rows from all over the rest if there is one."""
    with open_unpacked(path) as file:
        head = file.read(share)
        if not file.read(1):
            rows = _parsed(path, head, written)
            return rows, len(head) / rows.num_rows, None
        head = _whole_lines(head, path)
        rows = _parsed(path, head, written)
        if is_packed(path):
            return rows, len(head) / rows.num_rows, None
        stride = (path.stat().st_size - len(head)) // CHUNKS
        length = min(CHUNK_BYTES, stride // 3)
        chunks = []
        for place, share_of_rest in enumerate(np.random.default_rng(_SEED).random(CHUNKS).tolist()):
            file.seek(len(head) + place * stride + int(share_of_rest * stride / 3))
            file.readline(length)
            chunks.append(file.read(length).rpartition(b"\n")[0])
    header = head[: head.find(b"\n") + 1] if suffix_of(path) in SUFFIXES else b""
    rest = None
    with contextlib.suppress(DataError):  # a part began inside a quoted value of several lines
        rest = _parsed(path, header + b"\n".join(chunks) + b"\n", written)
    return rows, len(head) / rows.num_rows, rest


def _whole_lines(head: bytes, path: Path) -> bytes:
    """Return bytes up to the last end of a line that lies in no quoted value."""
    end = head.rfind(b"\n")
    num_quotes = head.count(b'"', 0, max(0, end)) if suffix_of(path) in SUFFIXES else 0
    while end > 0 and num_quotes % 2:
        behind, end = end, head.rfind(b"\n", 0, end)
        num_quotes -= head.count(b'"', max(0, end), behind)
    num_bytes = len(head) - end - 1
    if end <= 0 or num_bytes > LINE_BYTES:
        number = head.count(b"\n", 0, end + 1) + 1
        raise DataError(
            f"{path}: line {number:,} does not end within {num_bytes:,} bytes: is it a table, or is a quote left open? "
            "Correct that line, or name another file"
        )
    return head[: end + 1]


def _parsed(path: Path, content: bytes, written: Written) -> pa.Table:
    """Return the rows in a part of a file, which the readers of whole files read."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f"part{suffix_of(path)}"
        part.write_bytes(content)
        try:
            return read_source(part, str(path), na_is_text=written.codes, as_text=written.commas)
        except DataError as error:
            raise DataError(str(error).replace(str(part), str(path))) from error


def _footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except UNREADABLE as error:
        cure = "it was cut short or is of another format; copy or make it again"
        raise DataError(f"{path}: no whole Parquet file ({first_line(error)}): {cure}") from error


def _of_files(path: Path, files: Sequence[Path], num_rows: int) -> list[pa.Table]:
    """Return rows of Parquet files: a quarter are the first, the others from row groups all over."""
    chosen = _chosen(files)
    groups = [(file, group) for file in chosen for group in range(_footer(file).num_row_groups)]
    rng = np.random.default_rng(_SEED)
    places = sorted(rng.choice(len(groups), min(len(groups), CHUNKS), replace=False).tolist())
    first = _group(groups[0][0], 0, num_rows if len(groups) == 1 else max(1, num_rows // 4))
    share = max(1, num_rows * 3 // 4 // len(places))
    parts = [_group(groups[place][0], groups[place][1], share) for place in places if place]
    chosen_of = [groups[0][0], *(groups[place][0] for place in places if place)]
    return _with_partitions(path if path.is_dir() else None, files, chosen_of, [first, *parts])


def _group(path: Path, group: int, num_rows: int) -> pa.Table:
    """Return the first rows of a row group; the buffer is small, so that no whole column is in memory."""
    with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        batch = next(file.iter_batches(num_rows, row_groups=[group], use_threads=False))
    return with_plain_types(pa.Table.from_batches([batch]).replace_schema_metadata(None))


def _chosen(files: Sequence[Path]) -> list[Path]:
    """Return the first file and some others, in their order."""
    further = np.random.default_rng(_SEED).permutation(len(files) - 1)[: MOST_FILES - 1] + 1
    return [files[place] for place in [0, *sorted(further.tolist())]]


def _with_partitions(
    folder: Path | None, files: Sequence[Path], chosen: Sequence[Path], tables: Sequence[pa.Table]
) -> list[pa.Table]:
    """Return tables with the columns that the folders of their files name."""
    if folder is None:
        return list(tables)
    types = partition_types([partition_of(file, folder) for file in files])
    return [
        with_partitions(table, partition_of(file, folder), types) for file, table in zip(chosen, tables, strict=True)
    ]
