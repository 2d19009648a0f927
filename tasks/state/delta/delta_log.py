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
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from models.errors import StoreError
from models.files import storing, sync
from tasks.state.delta.delta_commits import (
    COMMITS,
    REPLACED_H,
    Action,
    commit,
    commits_since_checkpoint,
    declaration,
    drop_damaged_checkpoint,
    newest_commit,
    newest_cursor,
    now_ms,
    schema_of,
    tidy,
    transaction,
)
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

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from deltalake import DeltaTable
    from filelock import FileLock
    from numpy.typing import NDArray

FEWEST_PARTS = 8
"""Fewest neighbouring files that are merged; each row is then written about log8(rows) times in all."""
DAMAGED = "_damaged"
"""The folder within a log to which unreadable files are moved; Delta ignores names that begin with `_`."""
_TRIES = 5
_log = logging.getLogger("loopline.log")

T = TypeVar("T")


class DeltaLog:
    """The log in one folder.

    Args:
        folder: The table's folder; the first append creates it.
        fields: The columns of every row, with their types; other columns may differ between appends.
    """

    def __init__(self, folder: Path, fields: pa.Schema) -> None:
        self.folder = folder
        self._fields = fields
        self._threads = threading.RLock()
        self._lock: FileLock | None = None
        self._snapshot: tuple[int, DeltaTable | None] = -1, None

    def append(self, table: pa.Table, key: str | None = None, offsets: Mapping[str, int] | None = None) -> int:
        """Append rows and return the cursor after them; on return they are on disk.

        Args:
            table: The rows, with a column `at`; a missing column of `fields` becomes null.
            key: A second append with the same key adds nothing, so that killed work can be repeated.
            offsets: How far growing sources were read for these rows; stored in the same commit (see `offsets`).

        Raises:
            StoreError: The disk is full or the folder cannot be written; nothing was added.
        """
        import pyarrow as pa

        if not table.num_rows or (key is not None and self.has(key)):
            return self.cursor()
        rows = storable(table)
        with storing(self.folder), self._locked():
            if key is not None and self.has(key):
                return self.cursor()
            rows, number = self._renamed(rows), self.cursor() + 1
            rows = rows.append_column(APPEND, pa.array([number] * rows.num_rows, pa.int64()))
            for field in self._fields:
                if field.name not in rows.column_names:
                    rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            part, actions = self._fitted(rows)
            actions += [transaction(key, number)] if key is not None else []
            actions += [transaction(source, offset, updated_ms=now_ms()) for source, offset in (offsets or {}).items()]
            commit(self.folder, number, [], [part], actions)
        return number

    def has(self, key: str) -> bool:
        """Return whether the log has an append with this key whose rows were not lost with a damaged file."""
        number = self._read(lambda table: table.transaction_version(key))
        lost = [path.stem.split("-") for path in (self.folder / DAMAGED).glob("*.parquet")]
        return number is not None and not any(int(first) <= number <= int(last) for first, last in lost)

    def offsets(self, sources: Iterable[str]) -> dict[str, int]:
        """Return how far some sources were read for the log's rows; reading on from there adds each row once.

        What the offsets rest on is on disk, even if the process that added the rows was killed meanwhile.
        """
        names = list(sources)
        versions = self._read(lambda table: {name: table.transaction_version(name) or 0 for name in names})
        if versions is None:
            return dict.fromkeys(names, 0)
        sync(self.folder / COMMITS)
        return versions

    def cursor(self) -> int:
        """Return the number of the last append; 0 for an empty log. Reads a listing and the newest commit."""
        newest = newest_cursor(self.folder)
        return newest if newest is not None else self.offsets([APPEND])[APPEND]

    def parts(self, since: int = 0) -> list[LogPart]:
        """Return the files with the appends after `since`, oldest first; each append is in at most one of them.

        Raises:
            StoreError: The table cannot be read.
        """
        import pyarrow as pa

        actions = self._read(lambda table: pa.table(table.get_add_actions(flatten=True)))
        if actions is None:
            return []
        spans = [actions.column(f"{side}.{APPEND}").to_pylist() for side in ("min", "max")]
        times = [
            actions.column(f"{side}.at").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
            for side in ("min", "max")
        ]
        columns = (*spans, actions.column("path").to_pylist(), actions.column("num_records").to_pylist(), *times)
        parts = [
            LogPart(first, last, self.folder / path, rows, (begin, end))
            for first, last, path, rows, begin, end in zip(*columns, strict=True)
        ]
        return sorted(part for part in parts if part.last > since)

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
        while _worth_merging(self.parts()):
            with storing(self.folder), self._locked():
                run = _worth_merging(self.parts())  # again: another compactor may have been faster
                if run:
                    self._replace(run, [rows for part in run for rows in self._rows(part, 0, part.last)], is_same=True)
                    merged += len(run)
        if commits_since_checkpoint(self.folder) >= FEWEST_PARTS:
            with storing(self.folder), self._locked():
                self._read(lambda table: tidy(table, self.folder))
                self._snapshot = -1, None  # it may refer to files that were deleted
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

        if not self.folder.is_dir():
            return 0
        dropped = 0
        with storing(self.folder), self._locked():
            for part in self.parts():
                remaining = []
                for table in self._rows(part, 0, part.last) if part.times[0] < before_us else []:
                    stays = times_of(table) >= before_us
                    if spared is not None and not stays.all():
                        stays[~stays] = spared(table.filter(pa.array(~stays)))
                    remaining.append(table.filter(pa.array(stays)))
                num_left = sum(table.num_rows for table in remaining)
                if part.times[0] < before_us and num_left < part.rows:
                    self._replace([part], remaining, is_same=False)
                    part.path.unlink(missing_ok=True)
                    dropped += part.rows - num_left
            current = {part.path for part in self.parts()}  # files that were merged before have the dropped rows too
            newest = time.time() - (0 if dropped else 3600 * REPLACED_H)
            for path in self.folder.glob("*.parquet"):
                if path not in current and path.stat().st_mtime <= newest:
                    path.unlink()
        return dropped

    def _read(self, read: Callable[[DeltaTable], T]) -> T | None:
        """Return what `read` returns for the table as it is now; None if there is no table yet.

        delta-rs reads commits and checkpoints when it needs them; another process may have deleted them by then.

        Raises:
            StoreError: The table cannot be read.
        """
        if newest_commit(self.folder) < 0:
            return None
        from deltalake.exceptions import DeltaError, TableNotFoundError

        for attempt in range(_TRIES):
            try:
                return read(self._newest_table())
            except TableNotFoundError:  # it was removed meanwhile
                return None
            except (DeltaError, OSError) as error:
                self._snapshot, problem = (-1, None), error
            if attempt:
                with contextlib.suppress(StoreError, OSError), self._locked():
                    drop_damaged_checkpoint(self.folder)
        reason, cure = str(problem).partition("\n")[0], f"put {COMMITS} back from a backup, or remove the folder"
        raise StoreError(f"{self.folder}: the Delta table cannot be read ({reason}): {cure}") from problem

    def _table(self) -> DeltaTable | None:
        return self._read(lambda table: table)

    def _newest_table(self) -> DeltaTable:
        from deltalake import DeltaTable

        newest = newest_commit(self.folder)
        version, table = self._snapshot
        if table is None or version != newest:
            table = DeltaTable(self.folder)
            self._snapshot = newest, table
        return table

    def _rows(
        self, part: LogPart, since: int, upto: int, columns: Sequence[str] | None = None, batch: int = MOST_ROWS
    ) -> Iterator[pa.Table]:
        """Yield a file's rows, from the file that has them now; set the file aside if it is damaged."""
        try:
            file = opened(part.path)
        except FileNotFoundError as error:
            for part_before in self.parts(part.first - 1):
                if part_before.path == part.path:
                    cure = f"put it back, or give up its rows: `DeltaTable({str(self.folder)!r}).repair()`"
                    raise StoreError(f"{part.path}: a file of the table was deleted: {cure}") from error
                if part_before.first <= part.last:
                    yield from self._rows(part_before, max(since, part.first - 1), min(upto, part.last), columns, batch)
            return
        except DamagedFileError as error:
            self._set_aside(part, error)
            return
        try:
            yield from rows_of(file, part, since, upto, columns, batch)
        except DamagedFileError as error:
            raise StoreError(f"{self._set_aside(part, error)}; the others can be read: run again") from error

    def _set_aside(self, part: LogPart, error: DamagedFileError) -> str:
        """Remove a damaged file from the table and keep it in a folder; return a message that states the loss."""
        aside = self.folder / DAMAGED / f"{part.first:012d}-{part.last:012d}.parquet"
        with storing(self.folder), self._locked():
            if any(live.path == part.path for live in self.parts()):  # else another process has set it aside
                aside.parent.mkdir(exist_ok=True)
                shutil.copy2(part.path, aside)
                commit(self.folder, self.cursor(), [part], [])
                part.path.unlink(missing_ok=True)
        appends = f"the append {part.first}" if part.first == part.last else f"the appends {part.first} to {part.last}"
        message = f"{error}; the rows of {appends} are gone; the file was moved to {aside}"
        _log.warning("%s", message)
        return message

    def _renamed(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the names under which the table stores their columns."""
        column_names = self._read(lambda table: schema_of(table).names)
        names = distinct(rows.column_names, column_names or [APPEND, *self._fields.names])
        rows = rows.rename_columns(names)
        return rows.select([place for place, name in enumerate(names) if name not in names[:place]])

    def _fitted(self, rows: pa.Table) -> tuple[LogPart, list[Action]]:
        """Write the rows in a schema that can hold the table's rows too; return the file, and the schema's actions."""
        import pyarrow as pa

        try:
            schema, actions = self._widened(rows)
            return written(self.folder, [rows], schema), actions
        except pa.ArrowInvalid:  # the wider type cannot hold a value, such as an integer above 2**53 among floats
            schema, actions = self._widened(rows, as_text=True)
            return written(self.folder, [rows], schema), actions

    def _widened(self, rows: pa.Table, *, as_text: bool = False) -> tuple[pa.Schema, list[Action]]:
        """Return the schema that can hold the table's rows and these, and the actions that declare it if it is new.

        A column with another type than before is text from now on, or the wider type of numbers: files are rewritten.
        """
        import pyarrow as pa

        from models.sources.row_batches import concatenated

        table = self._table()
        own_schema = pa.schema([pa.field(APPEND, pa.int64()), *self._fields])
        table_schema = own_schema if table is None else schema_of(table)
        new_fields = pa.schema([field for field in rows.schema if field.name not in own_schema.names])
        for place, field in enumerate(new_fields):
            if as_text and field.name in table_schema.names and field.type != table_schema.field(field.name).type:
                new_fields = new_fields.set(place, field.with_type(pa.string()))
        schema = concatenated([table_schema.empty_table(), new_fields.empty_table()]).schema
        if table is not None and schema.equals(table_schema):
            return table_schema, []
        declared = declaration(schema, table)
        if all(schema.field(field.name).type == field.type for field in table_schema):
            return schema, declared
        parts = self.parts()
        contents = ([*self._rows(part, 0, part.last)] for part in parts)
        rewritten = [written(self.folder, tables, schema) for tables in contents if tables]
        commit(self.folder, self.cursor(), parts, rewritten, declared)
        return schema, []

    def _replace(self, parts: Sequence[LogPart], tables: Sequence[pa.Table], *, is_same: bool) -> None:
        """Replace files by one with these rows; without rows by none. `is_same`: the rows are those of the files."""
        rows, table = [rows_of_table for rows_of_table in tables if rows_of_table.num_rows], self._table()
        added = [written(self.folder, rows, schema_of(table))] if rows and table is not None else []
        commit(self.folder, self.cursor(), parts, added, is_same=is_same)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude all other writers; a holder may enter again."""
        import filelock

        with self._threads:
            if self._lock is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = filelock.FileLock(self.folder / ".lock", thread_local=False)
            with self._lock:
                yield


def _worth_merging(parts: Sequence[LogPart]) -> list[LogPart]:
    """Return the first run of at least FEWEST_PARTS neighbours of the smallest size class; empty if there is none."""
    for tier in range(_tier(MOST_ROWS) + 1):
        run: list[LogPart] = []
        rows = 0
        for part in parts:
            fits = _tier(part.rows) <= tier and rows + part.rows <= MOST_ROWS
            if not fits and len(run) >= FEWEST_PARTS:
                return run
            if not fits:
                run, rows = [], 0
            if _tier(part.rows) <= tier and part.rows < MOST_ROWS:
                run.append(part)
                rows += part.rows
        if len(run) >= FEWEST_PARTS:
            return run
    return []


def _tier(rows: int) -> int:
    return (max(1, rows).bit_length() - 1) // 3
