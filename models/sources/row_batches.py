"""Rows of files in batches of equal size, so that memory does not grow with the files."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from models.errors import DataError
from models.sources.delimiter import PARQUET
from models.sources.folders import partition_of, with_partitions
from models.sources.formats import FORMATS
from models.sources.packed import arrow_input, delimiter_of, open_unpacked, suffix_of
from models.sources.picture_folders import IMAGE, is_picture
from models.sources.read import (
    UNREADABLE,
    check_texts,
    csv_options,
    first_line,
    refuse_empty,
    refuse_open_quote,
    refuse_shared_names,
    with_na,
    with_plain_types,
    with_row,
)
from models.sources.text_files import is_text_file, text_lines

_BLOCK_BYTES = 1 << 22
_FIRST_ROWS = 1000
_CSV_PLACE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to )?")


def column_names(path: Path, folder: Path | None = None) -> list[str]:
    """Return the columns of a file; in a `folder` that is read, with those that its folders name.

    Raises:
        DataError: The file cannot be read, or two columns share a name.
    """
    with _reading(path):
        names = _names(path)
    names += [name for name in (partition_of(path, folder) if folder else ()) if name not in names]
    refuse_shared_names(names, str(path))
    return names


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DataError(f"{path}: cannot be read ({with_row(first_line(error))}): copy or make it again") from error


def count_rows(path: Path) -> int:
    """Return the number of rows of a file; for CSV its lines, which are more if a value contains a line feed.

    Raises:
        DataError: The file cannot be read.
    """
    lines, last = 0, b"\n"
    with _reading(path):
        if suffix_of(path) in PARQUET:
            return int(pq.read_metadata(path).num_rows)
        if is_picture(path):
            return 1
        if reader := FORMATS.get(suffix_of(path)):
            return int(reader(path).num_rows)
        with open_unpacked(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
    return lines + (last != b"\n") - (not is_text_file(path))


def first_values(path: Path, column: str) -> pa.ChunkedArray | None:
    """Return the first values of a column of a CSV or Parquet file, as `read_source` reads them; None if there is none.

    A file that cannot be read has none: ingest says what is wrong with it.
    """
    with contextlib.suppress(DataError, *UNREADABLE):
        if suffix_of(path) in PARQUET:
            with pq.ParquetFile(path) as file:
                batch = next(file.iter_batches(_FIRST_ROWS, columns=[column]), None)
        else:
            with _csv(path, {}, [column]) as reader:
                batch = next((batch for batch in reader if batch.num_rows), None)
        return None if batch is None else with_plain_types(pa.Table.from_batches([batch])).column(0)
    return None


def row_batches(
    paths: Sequence[Path],
    types: Mapping[str, pa.DataType],
    rows: int,
    folder: Path | None = None,
    na_is_text: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Yield the rows of the files one after the other, `rows` at a time except in the last table.

    Args:
        paths: The result of `data_files`.
        types: Types of the columns of CSV files; a column that is not in it is text.
        rows: Rows in each table.
        folder: The folder that is read, if the files are of one: folders below it named `city=Oslo` make a column.
        na_is_text: Columns of CSV files in which NA, null and their like are texts.

    Raises:
        DataError: A file is cut short, not UTF-8, or a value does not fit its column's type; names file, row and
            column.
    """
    tables = (
        with_partitions(table, partition_of(path, folder) if folder else {}, types)
        for path in paths
        for table in _tables(path, types, rows, na_is_text, folder or path.parent)
    )
    yield from sized(tables, rows)


def sized(tables: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of `rows` each, except the last."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count < rows:
            continue
        whole = concatenated(waiting)
        start = 0
        while count - start >= rows:
            yield whole.slice(start, rows)
            start += rows
        waiting, count = [whole.slice(start)], count - start
    if count:
        yield concatenated(waiting)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables: a column that some of them lack is null there, one with several types becomes text."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return pa.concat_tables([_as_text(table, tables) for table in tables], promote_options="permissive")


def _as_text(table: pa.Table, tables: Sequence[pa.Table]) -> pa.Table:
    """Return `table` with columns as text if their types differ between `tables`."""
    types = [{field.name: field.type for field in other_table.schema} for other_table in tables]
    for position, field in enumerate(table.schema):
        kinds = {by_name[field.name] for by_name in types if field.name in by_name}
        if len(kinds - {pa.null()}) > 1:
            table = table.set_column(position, field.name, texts_of(table.column(position)))
    return table


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column's values as text: bytes in base64, because they may be no text; lists and structs as JSON."""
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_nested(kind)):
        return column.cast(pa.string())
    write = partial(json.dumps, default=_plain) if pa.types.is_nested(kind) else _plain
    return pa.array([None if value is None else write(value) for value in column.to_pylist()], pa.string())


def _plain(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _tables(
    path: Path, types: Mapping[str, pa.DataType], rows: int, na_is_text: Sequence[str], folder: Path
) -> Iterator[pa.Table]:
    try:
        if suffix_of(path) in PARQUET:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(rows):
                    table = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                    check_texts(table, str(path))
                    yield with_plain_types(table)
            return
        if reader := FORMATS.get(suffix_of(path)):
            yield with_plain_types(reader(path))
            return
        if is_picture(path):
            yield pa.table({IMAGE: [path.relative_to(folder).as_posix()]})
            return
        if is_text_file(path):
            lines = text_lines(path)
            while part := list(itertools.islice(lines, rows)):
                yield pa.table({"text": pa.array(part, pa.string())})
            return
        names = _names(path)
        table = pa.table({})
        for batch in _csv(path, {name: types.get(name, pa.string()) for name in names}, na_is_text=na_is_text):
            table = with_na(pa.Table.from_batches([batch]), na_is_text)
            yield table
        refuse_open_quote(table, path)
    except UNREADABLE as error:
        raise DataError(f"{path}: {_complaint(path, error)}") from error


def _names(path: Path) -> list[str]:
    if suffix_of(path) in PARQUET:
        return list(pq.read_schema(path).names)
    if reader := FORMATS.get(suffix_of(path)):
        return list(reader(path).column_names)
    if is_picture(path):
        return [IMAGE]
    if is_text_file(path):
        return ["text"]
    refuse_empty(path)
    with _csv(path, {}) as reader:
        return list(reader.schema.names)


def _csv(
    path: Path, types: Mapping[str, pa.DataType], columns: Sequence[str] = (), na_is_text: Sequence[str] = ()
) -> pyarrow.csv.CSVStreamingReader:
    # One thread, because otherwise an error does not name its row.
    read_options = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
    options = csv_options(delimiter_of(path), types, columns, na_is_text)
    return pyarrow.csv.open_csv(arrow_input(path), read_options=read_options, **options)


def _complaint(path: Path, error: Exception) -> str:
    """Return pyarrow's message, with the column's name instead of its number."""
    reason = first_line(error)
    place = _CSV_PLACE.match(reason)
    if not place:
        return f"cannot be read ({with_row(reason)}): correct that line, or copy or make the file again"
    name = _names(path)[int(place.group(1))]
    row = f"row {int(place.group(2)) - 1}, " if place.group(2) else ""
    return f"{row}column {name!r}: expected {reason[place.end() :]}: correct the value, or leave it empty for missing"
