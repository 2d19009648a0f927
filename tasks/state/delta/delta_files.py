"""The Parquet files of a Delta table of this workspace: their rows by append and by time, and the types they store."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from models.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

APPEND = "append"
"""The column with the number of the append that added a row."""
MOST_ROWS = 1 << 18
"""Maximum rows of a compacted file; compacting holds them in memory."""
BATCH_ROWS = 1 << 16
_CASE = re.compile(r"(~case\d+)+$")


class DamagedFileError(StoreError):
    """A file of the table cannot be read, and a retry will not help."""


class LogPart(NamedTuple):
    """A file of the table: rows of the appends `first` to `last`, with `at` from `times[0]` to `times[1]` (us)."""

    first: int
    last: int
    name: str
    rows: int
    times: tuple[int, int]
    size: int
    """Bytes of the file."""


def opened(source: Path | IO[bytes], where: str) -> pq.ParquetFile:
    """Open a file for reading.

    Args:
        source: Its path, or its content.
        where: What an error calls it.

    Raises:
        DamagedFileError: It is not a complete file.
        FileNotFoundError: Its rows are in another file now, or somebody deleted it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise DamagedFileError(f"{where}: no whole Parquet file ({error})") from error


def rows_of(
    file: pq.ParquetFile, where: str, part: LogPart, since: int, upto: int, columns: Sequence[str] | None, batch: int
) -> Iterator[pa.Table]:
    """Yield the rows of an open file that belong to the appends after `since`, up to `upto`, with the column `APPEND`.

    Raises:
        DamagedFileError: The rows cannot be decoded.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    selected = None if columns is None else {*columns, APPEND}
    names = [name for name in file.schema_arrow.names if selected is None or own_name(name) in selected]
    try:
        with file:
            for record in file.iter_batches(batch, columns=names, use_threads=False):
                table = pa.Table.from_batches([record]).replace_schema_metadata(None)
                if part.first <= since or part.last > upto:
                    numbers = table.column(APPEND)
                    table = table.filter(pc.and_(pc.greater(numbers, since), pc.less_equal(numbers, upto)))
                if table.num_rows:
                    yield table
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the content
            raise
        raise DamagedFileError(f"{where}: its rows cannot be decoded ({error})") from error


def by_append(table: pa.Table, batch: int, *, numbered: bool) -> Iterator[pa.Table]:
    """Yield rows in the order of their appends, at most `batch` rows at a time; `numbered` keeps the column APPEND."""
    import numpy as np

    numbers = table.column(APPEND).to_numpy()
    rows = table if (np.diff(numbers) >= 0).all() else table.take(numbers.argsort(kind="stable"))
    rows = own_names(rows if numbered else rows.drop_columns([APPEND]))
    for start in range(0, rows.num_rows, batch):
        yield rows.slice(start, batch)


def written(write: Callable[[str, pa.Buffer], None], tables: Sequence[pa.Table], schema: pa.Schema) -> LogPart:
    """Write a file with some rows, by `at`, in the types of `schema`; a commit adds it to the table.

    Args:
        write: Stores a new file durably, by its name and content.
        tables: The rows.
        schema: The table's schema.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from models.sources.row_batches import concatenated

    table = concatenated(tables)
    for place, name in enumerate(table.column_names):
        table = table.set_column(place, name, _cast(table.column(name), schema.field(name).type))
    times = times_of(table)
    table = table if (np.diff(times) >= 0).all() else table.take(np.argsort(times, kind="stable"))
    first, last = pc.min_max(table.column(APPEND)).as_py().values()
    name = f"{first:012d}-{last:012d}-{uuid.uuid4().hex[:12]}.parquet"
    file = pa.BufferOutputStream()
    pq.write_table(table, file, compression="zstd", row_group_size=BATCH_ROWS)
    content = file.getvalue()
    write(name, content)
    return LogPart(first, last, name, table.num_rows, (int(times.min()), int(times.max())), content.size)


def storable(table: pa.Table) -> pa.Table:
    """Return the table in types of Delta Lake, without columns that have no type because all their values are null."""
    import pyarrow as pa

    table = table.select([field.name for field in table.schema if field.type != pa.null()])
    for place, field in enumerate(table.schema):
        table = table.set_column(place, field.name, _cast(table.column(place), _stored_type(field.type)))
    return table


def distinct(names: Sequence[str], stored_names: Sequence[str]) -> list[str]:
    """Return names of columns as a table stores them: Delta knows no names that differ only in case.

    Args:
        names: The names of new rows. Of a name that occurs twice, the second is no column of its own.
        stored_names: The names that the table has.
    """
    lower_names, stored = {name.lower() for name in stored_names}, {own_name(name): name for name in stored_names}
    for name in map(own_name, names):
        if name not in stored:
            numbers = itertools.count(2)
            unique = name
            while unique.lower() in lower_names:
                unique = f"{name}~case{next(numbers)}"
            stored[name] = unique
            lower_names.add(unique.lower())
    return [stored[own_name(name)] for name in names]


def own_name(name: str) -> str:
    """Return the name of a column that is stored under a name of `distinct`."""
    return _CASE.sub("", name)


def own_names(table: pa.Table) -> pa.Table:
    """Return the table with its columns' own names."""
    return table.rename_columns([own_name(name) for name in table.column_names])


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Delta Lake stores values of an Arrow type; text if it has none."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20)}[kind.bit_width]
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_stored_type(kind.value_type))
    if types.is_float16(kind):
        return pa.float32()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    stays = (types.is_boolean, types.is_signed_integer, types.is_floating, types.is_decimal, types.is_binary)
    return kind if kind == pa.date32() or any(is_kind(kind) for is_kind in stays) else pa.string()


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    from models.sources.row_batches import texts_of

    is_text = pa.types.is_string(kind) and not pa.types.is_dictionary(column.type)
    return texts_of(column) if is_text else column.cast(kind, safe=not pa.types.is_timestamp(kind))


def overlapping(spans: Sequence[tuple[int, int]]) -> int:
    """Return the largest number of spans that overlap at one time."""
    ends = sorted([(first, 1) for first, _ in spans] + [(last + 1, -1) for _, last in spans])
    most_open = now = 0
    for _, step in ends:
        now += step
        most_open = max(most_open, now)
    return most_open


def times_of(table: pa.Table) -> Any:
    """Return `at` as int64 microseconds (rows,)."""
    import pyarrow as pa

    return table.column("at").cast(pa.int64()).to_numpy()


def in_order(streams: Sequence[tuple[int, Iterator[pa.Table]]]) -> Iterator[pa.Table]:
    """Merge streams that are each sorted by `at` into one; each comes with its first `at`.

    Rows in memory up to the earliest last `at` of the tables in memory can be yielded: all unread rows are later.
    """
    import numpy as np

    from models.sources.row_batches import concatenated

    waiting = list(streams)
    merging: list[tuple[pa.Table, Iterator[pa.Table]]] = []
    while waiting or merging:
        horizon = min((int(times_of(table)[-1]) for table, _ in merging), default=None)
        while waiting and (horizon is None or waiting[0][0] <= horizon):
            _, stream = waiting.pop(0)
            table = next(stream, None)
            if table is not None:
                merging.append((table, stream))
                horizon = min(int(times_of(table)[-1]), horizon if horizon is not None else 2**63 - 1)
        if horizon is None:
            continue
        ready, open_streams = [], []
        for table, stream in merging:
            end = int(times_of(table).searchsorted(horizon, side="right"))
            ready.append(table.slice(0, end))
            rest = table.slice(end) if end < table.num_rows else next(stream, None)
            if rest is not None:
                open_streams.append((rest, stream))
        merging = open_streams
        rows = concatenated([table for table in ready if table.num_rows])
        yield rows.take(np.argsort(times_of(rows), kind="stable"))
