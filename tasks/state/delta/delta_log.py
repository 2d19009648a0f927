"""An append-only log of rows as a Delta Lake table, which any number of processes write, read and compact at once.

The appends are numbered from 1; each row has its number in the column `append`, and every commit has the last number as
an application transaction. So a cursor is the number of an append, and compacting changes no cursor. Within a file,
rows are ordered by `at`; the files' spans of appends do not overlap.

A file that cannot be read is set aside: it is moved to `_damaged/` and removed from the table, so that only its rows
are lost.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError
from tasks.state.delta.delta_files import (
    APPEND,
    BATCH_ROWS,
    MOST_ROWS,
    DamagedFileError,
    LogPart,
    by_append,
    distinct,
    in_order,
    opened,
    overlapping,
    own_names,
    rows_of,
    storable,
    times_of,
    written,
)
from tasks.state.delta.log_table import REPLACED, LogTable, TakenError
from tasks.state.delta.places import DAMAGED, REPLACED_H, DiskPlace, Place

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FEWEST_PARTS = 8
"""Fewest neighbouring files that are merged; each row is then written about log8(rows) times in all."""
MOST_BYTES = 1 << 26
_TRIES = 30
_log = logging.getLogger("loopline.log")


class OrderedLog:
    """The log at one place.

    Args:
        place: Where its files are.
        fields: The columns of every row, with their types; other columns may differ between appends.
        most_bytes: Maximum bytes of a compacted file, compressed; merging holds its rows in memory.
    """

    def __init__(self, place: Place, fields: pa.Schema, most_bytes: int = MOST_BYTES) -> None:
        self.place = place
        self._fields = fields
        self._most_bytes = most_bytes
        self._table = LogTable(place)

    def append(self, table: pa.Table, key: str | None = None, offsets: Mapping[str, int] | None = None) -> int:
        """Append rows and return the cursor after them; on return they are on disk.

        Args:
            table: The rows, with a column `at`; a missing column of `fields` becomes null.
            key: A second append with the same key adds nothing, so that killed work can be repeated.
            offsets: How far growing sources were read for these rows; stored in the same commit (see `offsets`).

        Raises:
            StoreError: The disk is full or the folder cannot be written; nothing was added.
        """
        return self.added(table, key, offsets) or self.cursor()

    def added(self, table: pa.Table, key: str | None = None, offsets: Mapping[str, int] | None = None) -> int:
        """Do the work of `append`; return the number of this append, 0 if nothing was added."""
        if not table.num_rows:
            return 0
        rows = storable(table)
        for attempt in range(_TRIES):
            with self.place.writing():
                try:
                    return self._added(rows, key, offsets or {})
                except TakenError:  # another host was first
                    problem = attempt
            time.sleep(random.uniform(0, 0.05 * (problem + 1)))  # noqa: S311 - no secret
        raise StoreError(f"{self.place.address}: other hosts were first {_TRIES} times: the records wait, run again")

    def _added(self, rows: pa.Table, key: str | None, offsets: Mapping[str, int]) -> int:
        import pyarrow as pa

        last, *reached = self._table.numbers([APPEND, *offsets])
        is_there = offsets and all(
            version is not None and version >= offset for version, offset in zip(reached, offsets.values(), strict=True)
        )
        if is_there or (key is not None and self.has(key)):
            return 0
        rows, number = self._renamed(rows), (last or 0) + 1
        rows = rows.append_column(APPEND, pa.array([number] * rows.num_rows, pa.int64()))
        present = set(rows.column_names)
        for field in self._fields:
            if field.name not in present:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        marks = {APPEND: number} if key is None else {APPEND: number, key: number}
        self._table.commit([], [self._fitted(rows)], marks, offsets)
        return number

    def has(self, key: str) -> bool:
        """Return whether the log has an append with this key."""
        return self._table.numbers([key]) != [None]

    def offsets(self, sources: Iterable[str]) -> dict[str, int]:
        """Return how far some sources were read for the log's rows; reading on from there adds each row once.

        What the offsets rest on is on disk, even if the process that added the rows was killed meanwhile.
        """
        names = list(sources)
        versions = self._table.numbers(names)
        self.place.settle()
        return {name: version or 0 for name, version in zip(names, versions, strict=True)}

    def cursor(self) -> int:
        """Return the number of the last append; 0 for an empty log."""
        return self.offsets([APPEND])[APPEND]

    def identity(self) -> str:
        """Return the id of the table, which another one at this place does not have; empty if there is none."""
        return self._table.read(lambda table: str(table.metadata().id)) or ""

    def parts(self, since: int = 0) -> list[LogPart]:
        """Return the files with the appends after `since`, oldest first; each append is in at most one of them.

        Raises:
            StoreError: The table cannot be read.
        """
        return [part for part in self._table.parts() if part.last > since]

    def scan(
        self,
        since: int = 0,
        upto: int | None = None,
        columns: Sequence[str] | None = None,
        batch: int = BATCH_ROWS,
        *,
        numbered: bool = False,
    ) -> Iterator[pa.Table]:
        """Yield the rows of the appends after cursor `since`, up to cursor `upto`, in the order of the appends.

        Each table has those of `columns` that its file has (default: all), and at most `batch` rows. To read on later,
        call `cursor()` first, pass it as `upto`, and pass it as `since` of the next scan: then no row is read twice.
        `numbered` adds the column `APPEND` with the number of each row's append.
        """
        upto = self.cursor() if upto is None else upto
        for part in self.parts(since):
            if part.first > upto:
                return
            size = batch if part.first == part.last else MOST_ROWS
            for table in self._rows(part, since, upto, columns, size):
                yield from by_append(table, batch, numbered=numbered)

    def in_time_order(
        self,
        since_us: int | None = None,
        until_us: int | None = None,
        columns: Sequence[str] | None = None,
        upto: int | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows whose `at` is in [since_us, until_us), sorted by `at`, whatever the order of the appends.

        Only files whose times overlap are open at once; together they keep about 262,144 rows in memory.
        """
        upto = self.cursor() if upto is None else upto
        low = since_us if since_us is not None else -(2**63)
        high = until_us if until_us is not None else 2**63 - 1
        parts = [part for part in self.parts() if part.first <= upto and part.times[0] < high and part.times[1] >= low]
        selected = None if columns is None else [*columns, *(["at"] if "at" not in columns else [])]
        batch = max(256, MOST_ROWS // max(1, overlapping([part.times for part in parts])))
        streams = [(part.times[0], self._rows(part, 0, upto, selected, batch)) for part in parts]
        for table in in_order(sorted(streams, key=lambda stream: stream[0])):
            times = times_of(table)
            begin, end = times.searchsorted(low), times.searchsorted(high)
            if end > begin:
                yield own_names(table.slice(begin, end - begin).drop_columns([APPEND]))

    def compact(self) -> int:
        """Merge small neighbouring files; after some commits write a checkpoint and delete what is no longer needed.

        Safe to kill at any moment, and safe beside any number of readers and writers.

        Returns:
            How many files were merged.
        """
        merged = 0
        with contextlib.suppress(TakenError):  # another host replaces files
            while _worth_merging(self.parts(), self._most_bytes):
                merged += self._merge()
        if merged or self.place.commits_since_checkpoint() >= FEWEST_PARTS:
            with self.place.writing():
                self._table.tidy()
        return merged

    def forget(self, before_us: int, spared: Callable[[pa.Table], NDArray[np.bool_]] | None = None) -> int:
        """Drop the rows whose `at` is before `before_us`; return how many. Cursors and keys do not change.

        Safe to kill at any moment; the old files are deleted at once.

        Args:
            before_us: Microseconds since 1970.
            spared: Returns which of some old rows are kept all the same, bool (rows,).

        Raises:
            StoreError: The disk is full; rows dropped so far stay dropped.
        """
        import pyarrow as pa

        if self.place.is_newest(-1):
            return 0
        dropped = 0
        with contextlib.suppress(TakenError), self.place.writing():  # another host replaces files
            parts, number = self._table.parts_and_number()
            for part in parts:
                remaining = []
                for table in self._rows(part, 0, part.last) if part.times[0] < before_us else []:
                    stays = times_of(table) >= before_us
                    if spared is not None and not stays.all():
                        stays[~stays] = spared(table.filter(pa.array(~stays)))
                    remaining.append(table.filter(pa.array(stays)))
                num_left = sum(table.num_rows for table in remaining)
                if part.times[0] < before_us and num_left < part.rows:
                    number += 1
                    self._replace([part], remaining, number, is_same=False)
                    self.place.delete([part.name])
                    dropped += part.rows - num_left
            # files that were merged before have the dropped rows too
            self.place.delete(self._table.unused(self.place.unused_h if dropped else REPLACED_H))
        return dropped

    def _merge(self) -> int:
        """Merge the first neighbouring files that are worth it; return how many: another may have been faster."""
        with self.place.writing():
            parts, number = self._table.parts_and_number()
            run = _worth_merging(parts, self._most_bytes)
            if run:
                rows = [rows for part in run for rows in self._rows(part, 0, part.last)]
                self._replace(run, rows, number + 1, is_same=True)
            return len(run)

    def _rows(
        self, part: LogPart, since: int, upto: int, columns: Sequence[str] | None = None, batch: int = MOST_ROWS
    ) -> Iterator[pa.Table]:
        """Yield a file's rows, from the file that has them now; set the file aside if it is damaged."""
        where = f"{self.place.address}/{part.name}"
        try:
            file = opened(self.place.source(part.name), where)
        except FileNotFoundError as error:
            for part_before in self.parts(part.first - 1):
                if part_before.name == part.name:
                    cure = f"put it back, or give up its rows: `DeltaTable({self.place.address!r}).repair()`"
                    raise StoreError(f"{where}: a file of the table was deleted: {cure}") from error
                if part_before.first <= part.last:
                    yield from self._rows(part_before, max(since, part.first - 1), min(upto, part.last), columns, batch)
            return
        except DamagedFileError as error:
            self._set_aside(part, error)
            return
        try:
            yield from rows_of(file, where, part, since, upto, columns, batch)
        except DamagedFileError as error:
            raise StoreError(f"{self._set_aside(part, error)}; the others can be read: run again") from error

    def _set_aside(self, part: LogPart, error: DamagedFileError) -> str:
        """Remove a damaged file from the table and keep it in a folder; return a message that states the loss."""
        with self.place.writing():
            aside = self.place.keep_damaged(part)
            if any(live.name == part.name for live in self.parts()):  # else another process has set it aside
                self._table.commit([part], [], {}, {})
                self.place.delete([part.name])
        appends = f"the append {part.first}" if part.first == part.last else f"the appends {part.first} to {part.last}"
        message = f"{error}; the rows of {appends} are gone; the file was moved to {aside}"
        _log.warning("%s", message)
        return message

    def _renamed(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the names under which the table stores their columns."""
        stored = self._table.schema()
        names = distinct(rows.column_names, [APPEND, *self._fields.names] if stored is None else stored.names)
        rows = rows.rename_columns(names)
        return rows.select([place for place, name in enumerate(names) if name not in names[:place]])

    def _fitted(self, rows: pa.Table) -> LogPart:
        """Write the rows in a schema that can hold the table's rows too, which the table has then; return the file."""
        import pyarrow as pa

        try:
            return self._stored(rows, self._widened(rows))
        except pa.ArrowInvalid:  # the wider type cannot hold a value, such as an integer above 2**53 among floats
            return self._stored(rows, self._widened(rows, as_text=True))

    def _widened(self, rows: pa.Table, *, as_text: bool = False) -> pa.Schema:
        """Return the schema that can hold the table's rows and these.

        A column with another type than before is text from now on, or the wider type of numbers.
        """
        import pyarrow as pa

        from models.sources.row_batches import concatenated

        own_schema = pa.schema([pa.field(APPEND, pa.int64()), *self._fields])
        table_schema = self._table.schema() or own_schema
        own_names, types = set(own_schema.names), {field.name: field.type for field in table_schema}
        new_fields = pa.schema([field for field in rows.schema if field.name not in own_names])
        for place, field in enumerate(new_fields):
            if as_text and field.type != types.get(field.name, field.type):
                new_fields = new_fields.set(place, field.with_type(pa.string()))
        return concatenated([table_schema.empty_table(), new_fields.empty_table()]).schema

    def _stored(self, rows: pa.Table, schema: pa.Schema) -> LogPart:
        """Write the rows, and give the table their schema; files whose columns have other types are written anew."""
        part = written(self.place.write, [rows], schema)
        stored = self._table.schema()
        if stored is None or all(schema.field(field.name).type == field.type for field in stored):
            self._table.declare(schema, stored)
            return part
        parts, number = self._table.parts_and_number()
        contents = ([*self._rows(part, 0, part.last)] for part in parts)
        rewritten = [written(self.place.write, tables, schema) for tables in contents if tables]
        self._table.commit([], rewritten, {REPLACED: number + 1}, {}, schema)
        return part

    def _replace(self, parts: Sequence[LogPart], tables: Sequence[pa.Table], number: int, *, is_same: bool) -> None:
        """Replace files by one with these rows; without rows by none. `is_same`: the rows are those of the files."""
        rows, schema = [rows_of_table for rows_of_table in tables if rows_of_table.num_rows], self._table.schema()
        added = [written(self.place.write, rows, schema)] if rows and schema is not None else []
        self._table.commit(parts, added, {REPLACED: number}, {}, is_same=is_same)


class DeltaLog(OrderedLog):
    """The log in one folder of this disk.

    Args:
        folder: The table's folder; the first append creates it.
        fields: As of `OrderedLog`.
    """

    def __init__(self, folder: Path, fields: pa.Schema) -> None:
        self.folder = folder
        self._disk = DiskPlace(folder)
        super().__init__(self._disk, fields)

    def has(self, key: str) -> bool:
        """Return whether the log has an append with this key whose rows were not lost with a damaged file."""
        (number,) = self._table.numbers([key])
        lost = [path.stem.split("-") for path in (self.folder / DAMAGED).glob("*.parquet")]
        return number is not None and not any(int(first) <= number <= int(last) for first, last in lost)

    def cursor(self) -> int:
        """Return the number of the last append; 0 for an empty log. Reads a listing and some commits."""
        newest = self._disk.newest_cursor()
        return super().cursor() if newest is None else newest


def _worth_merging(parts: Sequence[LogPart], most_bytes: int) -> list[LogPart]:
    """Return the first run of at least FEWEST_PARTS neighbours of the smallest size class; empty if there is none."""
    for tier in range(_tier(MOST_ROWS) + 1):
        run: list[LogPart] = []
        rows = size = 0
        for part in parts:
            fits = _tier(part.rows) <= tier and rows + part.rows <= MOST_ROWS and size + part.size <= most_bytes
            if not fits and len(run) >= FEWEST_PARTS:
                return run
            if not fits:
                run, rows, size = [], 0, 0
            if _tier(part.rows) <= tier and part.rows < MOST_ROWS and part.size < most_bytes:
                run.append(part)
                rows += part.rows
                size += part.size
        if len(run) >= FEWEST_PARTS:
            return run
    return []


def _tier(rows: int) -> int:
    return (max(1, rows).bit_length() - 1) // 3
