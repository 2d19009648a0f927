"""A large CSV as a mapped table: read block by block, with the types that all of its rows have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from models.scratch import mapped
from models.sources.packed import arrow_input, is_packed, split_part

LARGE_BYTES = 64 << 20
"""Of a file that is read block by block; a compressed one is taken for four times as large."""
_BLOCK_BYTES = 1 << 22
_KINDS = (
    *(pa.null(), pa.int64(), pa.bool_(), pa.float64(), pa.date32(), pa.time32("s")),
    *(pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.string()),
)
"""In the order in which Arrow's reader of whole files tries them: a column is of the first that takes all values."""
_MISFIT = re.compile(
    r"In CSV column #(?P<column>\d+): (?:Row #\d+: )?CSV conversion error to [^:]+: (?:invalid value '(?P<value>.*)')?",
    re.DOTALL,
)


def is_large(path: Path) -> bool:
    """Return whether a CSV is so large that it is read block by block."""
    return split_part(path).file.stat().st_size * (4 if is_packed(path) else 1) >= LARGE_BYTES


def streamed(
    path: Path,
    types: Mapping[str, pa.DataType],
    options: Callable[[Mapping[str, pa.DataType]], dict[str, Any]],
    finish: Callable[[pa.Table], pa.Table],
    folder: Path,
) -> pa.Table:
    """Return the table of a CSV, mapped from a file without a name; its types are those of reading it whole.

    Cost: the file is read again for each type that only a later row shows, up to that row.

    Args:
        path: The file.
        types: The types that some columns are to have.
        options: Returns the reader's options for types of columns.
        finish: What becomes of the rows of a block.
        folder: The folder on whose disk the mapped file lies.

    Raises:
        pa.ArrowInvalid: The file is no CSV, or not UTF-8; the message names the row.
        StoreError: The disk is full or the folder cannot be written.
    """
    types, names = dict(types), list[str]()
    while True:
        try:
            # One thread, because otherwise an error does not name its row.
            read_options = pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
            with pyarrow.csv.open_csv(arrow_input(path), read_options=read_options, **options(types)) as reader:
                names = reader.schema.names
                types |= {field.name: field.type for field in reader.schema}
                first = finish(reader.schema.empty_table())
                return mapped(_finished(reader, finish), first.schema, folder)
        except pa.ArrowInvalid as error:
            misfit = _MISFIT.match(str(error))
            if misfit is None or int(misfit["column"]) >= len(names):
                raise
            name = names[int(misfit["column"])]
            if types[name] not in _KINDS[:-1]:
                raise
            types[name] = _next_kind(types[name], misfit["value"])


def _finished(reader: Any, finish: Callable[[pa.Table], pa.Table]) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield from finish(pa.Table.from_batches([batch])).to_batches()


def _next_kind(kind: pa.DataType, value: str | None) -> pa.DataType:
    """Return the next type that is tried, and that takes the value which the last one did not."""
    later = _KINDS[_KINDS.index(kind) + 1 :]
    return later[0] if value is None else next(candidate for candidate in later if _takes(candidate, value))


def _takes(kind: pa.DataType, value: str) -> bool:
    if pa.types.is_string(kind):
        return True
    cell = '"' + value.replace('"', '""') + '"\n'
    rules = pyarrow.csv.ConvertOptions(column_types={"": kind})
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    read = pyarrow.csv.ReadOptions(column_names=[""])
    try:
        pyarrow.csv.read_csv(pa.py_buffer(cell.encode()), read_options=read, parse_options=parse, convert_options=rules)
    except pa.ArrowInvalid:
        return False
    return True
