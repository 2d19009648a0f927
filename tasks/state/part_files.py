"""The files of a part log: the metadata of each file, and its rows by append and by time."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SEQUENCE = "__part"
MOST_ROWS = 1 << 18
"""Maximum rows of a compacted part; compacting holds them in memory."""
BATCH_ROWS = 1 << 16
_KEYS, _OFFSETS, _TIMES, _ROWS = b"loopline.keys", b"loopline.offsets", b"loopline.at", b"loopline.rows"
_NEVER = (2**63 - 1, -(2**63))
"""Times of a part without rows: they overlap no time span."""


class DamagedPartError(StoreError):
    """A part's file cannot be read, and a retry will not help."""


@dataclass(frozen=True)
class LogPart:
    """A file of the log: the appends `first` to `last`."""

    first: int
    last: int
    path: Path

    @cached_property
    def metadata(self) -> dict[bytes, bytes]:
        """The metadata in its footer, beside the schema."""
        with opened(self.path) as file:
            return dict(file.schema_arrow.metadata or {})

    @property
    def times(self) -> tuple[int, int]:
        """The first and the last `at` in it, in microseconds since 1970."""
        first, last = json.loads(self.metadata[_TIMES])
        return int(first), int(last)

    @property
    def keys(self) -> list[str]:
        """The keys of its appends."""
        return list(json.loads(self.metadata[_KEYS]))

    @property
    def offsets(self) -> dict[str, int]:
        """How far each source had been read when the rows were appended."""
        return dict(json.loads(self.metadata.get(_OFFSETS, b"{}")))

    @property
    def rows(self) -> int:
        """The number of its rows; 0 once they were dropped."""
        return int(self.metadata[_ROWS])


def opened(path: Path) -> pq.ParquetFile:
    """Open a part for reading.

    Raises:
        DamagedPartError: It is not a complete file.
        FileNotFoundError: It was compacted into another part meanwhile.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DamagedPartError(f"{path}: no whole Parquet file ({error})") from error


def rows_of(
    file: pq.ParquetFile, part: LogPart, since: int, upto: int, columns: Sequence[str] | None, batch: int
) -> Iterator[pa.Table]:
    """Yield the rows of an open part that belong to the appends after `since`, up to `upto`.

    Raises:
        DamagedPartError: Its rows cannot be decoded.
    """
    import pyarrow.compute as pc

    with file:
        is_cut = part.first <= since or part.last > upto
        there = file.schema_arrow.names
        wanted = [name for name in there if (columns is None or name in columns or (is_cut and name == SEQUENCE))]
        for decoded in _decoded(file, part, batch, wanted):
            table = decoded
            if is_cut:
                numbers = table.column(SEQUENCE)
                table = table.filter(pc.and_(pc.greater(numbers, since), pc.less_equal(numbers, upto)))
            unasked = SEQUENCE in table.column_names and (columns is None or SEQUENCE not in columns)
            if table.num_rows:
                yield table.drop_columns([SEQUENCE]) if unasked else table


def _decoded(file: pq.ParquetFile, part: LogPart, batch: int, columns: list[str]) -> Iterator[pa.Table]:
    import pyarrow as pa

    batches = file.iter_batches(batch, columns=columns, use_threads=False)
    while True:
        try:
            record = next(batches, None)
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the content
                raise
            raise DamagedPartError(f"{part.path}: its rows cannot be decoded ({error})") from error
        if record is None:
            return
        yield pa.Table.from_batches([record]).replace_schema_metadata(None)


def by_append(table: pa.Table, batch: int, first: int | None = None) -> Iterator[pa.Table]:
    """Yield a part's rows in the order of their appends, at most `batch` rows at a time.

    Args:
        table: The rows; if they come from several appends, with the column SEQUENCE.
        batch: Maximum rows of each yielded table.
        first: The part's first append, to keep or add the column SEQUENCE; None leaves the column out.
    """
    import pyarrow as pa

    if SEQUENCE in table.column_names:
        table = table.take(table.column(SEQUENCE).to_numpy().argsort(kind="stable"))
        table = table.drop_columns([SEQUENCE]) if first is None else table
    elif first is not None:
        table = table.append_column(SEQUENCE, pa.array([first] * table.num_rows, pa.int64()))
    for start in range(0, table.num_rows, batch):
        yield table.slice(start, batch)


def numbered_rows(part: LogPart) -> list[pa.Table]:
    """Return the rows of a part, each with the number of its append."""
    import pyarrow as pa

    file = opened(part.path)
    names = file.schema_arrow.names
    tables = list(rows_of(file, part, 0, part.last, names, MOST_ROWS))
    if SEQUENCE in names:
        return tables
    numbers = [pa.array([part.first] * table.num_rows, pa.int64()) for table in tables]
    return [table.append_column(SEQUENCE, one) for table, one in zip(tables, numbers, strict=True)]


def written(folder: Path, table: pa.Table, keys: Sequence[str], offsets: Mapping[str, int]) -> Path:
    """Write and sync a part as a temporary file that readers ignore: rows ordered by `at`, metadata in the footer."""
    import pyarrow.parquet as pq

    at = times_of(table)
    metadata = {
        _KEYS: json.dumps(list(keys)).encode(),
        _OFFSETS: json.dumps(dict(offsets)).encode(),
        _TIMES: json.dumps([int(at[0]), int(at[-1])] if len(at) else _NEVER).encode(),
        _ROWS: str(table.num_rows).encode(),
    }
    temporary = folder / f".{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp"
    try:
        with temporary.open("wb") as file:
            pq.write_table(table.replace_schema_metadata(metadata), file, compression="zstd", row_group_size=BATCH_ROWS)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def overlapping(spans: Sequence[tuple[int, int]]) -> int:
    """Return the largest number of spans that overlap at one time."""
    ends = sorted([(first, 1) for first, _ in spans] + [(last + 1, -1) for _, last in spans])
    most = now = 0
    for _, step in ends:
        now += step
        most = max(most, now)
    return most


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
    held: list[tuple[pa.Table, Iterator[pa.Table]]] = []
    while waiting or held:
        horizon = min((int(times_of(table)[-1]) for table, _ in held), default=None)
        while waiting and (horizon is None or waiting[0][0] <= horizon):
            _, stream = waiting.pop(0)
            table = next(stream, None)
            if table is not None:
                held.append((table, stream))
                horizon = min(int(times_of(table)[-1]), horizon if horizon is not None else 2**63 - 1)
        if horizon is None:
            continue
        ready, open_streams = [], []
        for table, stream in held:
            end = int(times_of(table).searchsorted(horizon, side="right"))
            ready.append(table.slice(0, end))
            rest = table.slice(end) if end < table.num_rows else next(stream, None)
            if rest is not None:
                open_streams.append((rest, stream))
        held = open_streams
        rows = concatenated([table for table in ready if table.num_rows])
        yield rows.take(np.argsort(times_of(rows), kind="stable"))
