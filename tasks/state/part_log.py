"""An append-only log of rows as Parquet parts, which any number of processes write, read and compact at once.

A part is one file, `<first>-<last>.parquet`; the numbers count the appends, from 1. An append writes and syncs its file
and renames it under a lock, so acknowledged rows are on disk and the numbers have no gaps. Compacting writes the rows
of several parts into one part whose name spans their numbers; from its rename on, the parts within its span are
ignored, and are deleted. So a reader that lists files while they change sees each row once: a wider part hides the
parts within it, and a gap means that the listing is outdated and must be repeated. Within a part, rows are ordered by
`at`.

A part that cannot be read is set aside: its file is copied to `damaged/`, and an empty part replaces it, so that only
its rows are lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError
from models.files import storing
from tasks.host.locks import tried
from tasks.state.part_files import (
    BATCH_ROWS,
    MOST_ROWS,
    SEQUENCE,
    DamagedPartError,
    LogPart,
    by_append,
    in_order,
    numbered_rows,
    opened,
    overlapping,
    rows_of,
    times_of,
    written,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

FEWEST_PARTS = 8
"""Fewest neighbouring parts that are merged; each row is then written about log8(rows) times in all."""
STALE_S = 3600.0
DAMAGED = "damaged"
"""The folder within a log to which unreadable parts are moved."""
_TRIES, _TRY_S = 200, 0.01
_log = logging.getLogger("loopline.log")


class PartLog:
    """The log in one folder.

    Args:
        folder: The log's folder; the first append creates it.
        fields: The columns of every row, with their types; other columns may differ between appends.
    """

    def __init__(self, folder: Path, fields: pa.Schema) -> None:
        self.folder = folder
        self._fields = fields
        self._known: dict[str, LogPart] = {}

    def append(self, table: pa.Table, key: str | None = None, offsets: Mapping[str, int] | None = None) -> int:
        """Append rows and return the cursor after them; on return they are on disk.

        Args:
            table: The rows, with a column `at`; a missing column of `fields` becomes null.
            key: A second append with the same key adds nothing, so that killed work can be repeated.
            offsets: How far growing sources were read for these rows; stored in the same file (see `offsets`).

        Raises:
            StoreError: The disk is full or the folder cannot be written; nothing was added.
        """
        if not table.num_rows or (key is not None and self.has(key)):
            return self.cursor()
        with storing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary = written(self.folder, self._whole(table), [key] if key is not None else [], offsets or {})
            try:
                with self._locked():
                    number = self.cursor() + 1
                    if key is not None and self.has(key):
                        return number - 1
                    self._publish(temporary, number, number)
            finally:
                temporary.unlink(missing_ok=True)
        return number

    def has(self, key: str) -> bool:
        """Return whether the log has an append with this key."""
        return any(key in part.keys for part in self.parts())

    def offsets(self) -> dict[str, int]:
        """Return how far each source was read for the log's rows; reading on from there adds each row once."""
        offsets: dict[str, int] = {}
        for part in self.parts():
            for source, offset in part.offsets.items():
                offsets[source] = max(offset, offsets.get(source, 0))
        return offsets

    def cursor(self) -> int:
        """Return the number of the last append; 0 for an empty log. Compacting does not change it."""
        parts = self._listed()
        return max((part.last for part in parts), default=0)

    def parts(self, since: int = 0) -> list[LogPart]:
        """Return the parts with the appends after `since`, oldest first; each append is in one part.

        Raises:
            StoreError: A file is missing whose appends no other file contains.
        """
        gap = ""
        for _ in range(_TRIES):
            cover: list[LogPart] = []
            for part in sorted(self._listed(), key=lambda part: (part.first, -part.last)):
                if not cover or part.last > cover[-1].last:
                    cover.append(part)
            gap = _gap(cover)
            if not gap:
                with contextlib.suppress(FileNotFoundError):
                    wanted = [part for part in cover if part.last > since]
                    for part in wanted:
                        self._check(part)
                    return wanted
            time.sleep(_TRY_S)
        raise StoreError(f"{self.folder}: {gap or 'files come and go'}: was a file deleted? Put it back, or remove all")

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

        Each table has those of `columns` that its part has (default: all), and at most `batch` rows. To read on later,
        call `cursor()` first, pass it as `upto`, and pass it as `since` of the next scan: then no row is read twice.
        `numbered` adds the column `SEQUENCE` with the number of each row's append.
        """
        upto = self.cursor() if upto is None else upto
        while since < upto and (parts := self.parts(since)):  # no parts: all were removed after `upto` was read
            for part in parts:
                if part.first > upto:
                    return
                try:
                    file = opened(part.path)
                except FileNotFoundError:
                    break  # compacted meanwhile: list the parts again from here
                names = [*(file.schema_arrow.names if columns is None else columns), SEQUENCE]
                size = batch if part.first == part.last else MOST_ROWS
                with self._decoding(part):
                    for table in rows_of(file, part, since, upto, names, size):
                        yield from by_append(table, batch, part.first if numbered else None)
                since = part.last

    def in_time_order(
        self,
        since_us: int | None = None,
        until_us: int | None = None,
        columns: Sequence[str] | None = None,
        upto: int | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows whose `at` is in [since_us, until_us), sorted by `at`, whatever the order of the appends.

        Only parts whose times overlap are open at once; together they keep about 262,144 rows in memory.
        """
        upto = self.cursor() if upto is None else upto
        low = since_us if since_us is not None else -(2**63)
        high = until_us if until_us is not None else 2**63 - 1
        parts = [part for part in self.parts() if part.first <= upto and part.times[0] < high and part.times[1] >= low]
        wanted = None if columns is None else [*columns, *(["at"] if "at" not in columns else [])]
        batch = max(256, MOST_ROWS // max(1, overlapping([part.times for part in parts])))
        streams = [(part.times[0], self._stream(part, upto, wanted, batch)) for part in parts]
        for table in in_order(sorted(streams, key=lambda stream: stream[0])):
            at = times_of(table)
            begin, end = at.searchsorted(low), at.searchsorted(high)
            if end > begin:
                yield table.slice(begin, end - begin)

    def compact(self, growing: Collection[str] | None = None) -> int:
        """Merge small neighbouring parts and delete leftover files; return how many parts were merged.

        Safe to kill at any moment, and safe beside any number of readers and writers; a second compactor returns at
        once.

        Args:
            growing: Sources that are still read; the offsets of other sources are dropped. None: all are kept.
        """
        merged = 0
        with self._alone() as is_alone:
            while is_alone and (run := _worth_merging(self.parts())):
                self._merge(run, growing)
                merged += len(run)
            if is_alone:
                self._sweep()
        return merged

    def forget(self, before_us: int, spared: Callable[[pa.Table], NDArray[np.bool_]] | None = None) -> int:
        """Drop the rows whose `at` is before `before_us`; return how many. Cursors and keys do not change.

        A part is rewritten without these rows under the same name. This is safe to kill at any moment, and a reader
        that has the old part open can read it to its end.

        Args:
            before_us: Microseconds since 1970.
            spared: Returns which of some old rows are kept all the same, bool (rows,).

        Raises:
            StoreError: The disk is full; rows dropped so far stay dropped.
        """
        dropped = 0
        with self._alone() as is_alone:
            for part in self.parts() if is_alone else []:
                if part.times[0] < before_us:
                    dropped += self._rewrite(part, before_us, spared)
        return dropped

    def summary(self) -> dict[str, Any]:
        """Return `rows`, `parts`, `bytes`, and `since` and `until`: first and last `at` in seconds (None if empty)."""
        parts = self.parts()
        times = [part.times for part in parts if part.rows]
        return {
            "rows": sum(part.rows for part in parts),
            "parts": len(parts),
            "bytes": sum(path.stat().st_size for part in parts if (path := part.path).exists()),
            "since": min(first for first, _ in times) / 1e6 if times else None,
            "until": max(last for _, last in times) / 1e6 if times else None,
        }

    def _whole(self, table: pa.Table) -> pa.Table:
        """Return the table with all required columns in their types, and its rows ordered by `at`."""
        import numpy as np
        import pyarrow as pa

        for field in self._fields:
            is_present = field.name in table.column_names
            column = table.column(field.name).cast(field.type) if is_present else pa.nulls(table.num_rows, field.type)
            table = table.drop_columns([field.name]) if is_present else table
            table = table.append_column(field, column)
        at = times_of(table)
        return table if (np.diff(at) >= 0).all() else table.take(np.argsort(at, kind="stable"))

    def _publish(self, temporary: Path, first: int, last: int) -> None:
        temporary.rename(self.folder / f"{first:012d}-{last:012d}.parquet")
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)  # so that the name is on disk too
        finally:
            os.close(handle)

    def _merge(self, run: list[LogPart], growing: Collection[str] | None) -> None:
        from models.sources.row_batches import concatenated

        tables = []
        for part in run:
            with self._decoding(part):
                tables += numbered_rows(part)
        keys = [key for part in run for key in part.keys]
        offsets: dict[str, int] = {}
        for part in run:
            for source, offset in part.offsets.items():
                if growing is None or source in growing:
                    offsets[source] = max(offset, offsets.get(source, 0))
        table = concatenated(tables) if tables else self._fields.empty_table()
        temporary = written(self.folder, self._whole(table), keys, offsets)
        self._replace(temporary, run[0].first, run[-1].last)

    def _rewrite(self, part: LogPart, before_us: int, spared: Callable[[pa.Table], NDArray[np.bool_]] | None) -> int:
        """Rewrite a part without its old rows, under the same name; return how many were dropped."""
        import pyarrow as pa

        from models.sources.row_batches import concatenated

        parts, dropped = [], 0
        with self._decoding(part):
            tables = numbered_rows(part)
        for table in tables:
            stays = times_of(table) >= before_us
            if spared is not None and not stays.all():
                stays[~stays] = spared(table.filter(pa.array(~stays)))
            dropped += int((~stays).sum())
            parts.append(table.filter(pa.array(stays)))
        if dropped:
            temporary = written(self.folder, self._whole(concatenated(parts)), part.keys, part.offsets)
            self._replace(temporary, part.first, part.last)
            del self._known[part.path.name]  # its cached footer is outdated
        return dropped

    def _replace(self, temporary: Path, first: int, last: int) -> None:
        try:
            with self._locked():
                self._publish(temporary, first, last)
        finally:
            temporary.unlink(missing_ok=True)

    def _check(self, part: LogPart) -> None:
        """Read the footer of a part; set the part aside if the footer cannot be read."""
        try:
            _ = part.metadata
        except DamagedPartError as error:
            self._set_aside(part, error)
            _ = part.metadata

    @contextlib.contextmanager
    def _decoding(self, part: LogPart) -> Iterator[None]:
        """Set the part aside if its rows cannot be decoded; the reader may have got some rows and must start again."""
        try:
            yield
        except DamagedPartError as error:
            raise StoreError(f"{self._set_aside(part, error)}: run again") from error

    def _set_aside(self, part: LogPart, error: DamagedPartError) -> str:
        """Replace a damaged part by an empty one and keep its file; return a message that states the loss."""
        aside = self.folder / DAMAGED / part.path.name
        with storing(self.folder), self._locked():
            if not self._is_empty(part):  # it is empty if another process has set it aside
                aside.parent.mkdir(exist_ok=True)
                shutil.copy2(part.path, aside)
                self._publish(written(self.folder, self._fields.empty_table(), [], {}), part.first, part.last)
        self._known.pop(part.path.name, None)
        part.__dict__.pop("metadata", None)
        what = f"the append {part.first}" if part.first == part.last else f"the appends {part.first} to {part.last}"
        message = f"{error}; the rows of {what} are gone; the file was moved to {aside}"
        _log.warning("%s", message)
        return message

    def _is_empty(self, part: LogPart) -> bool:
        try:
            return LogPart(part.first, part.last, part.path).rows == 0
        except DamagedPartError:
            return False

    def _sweep(self) -> None:
        """Delete parts within a wider part, and temporary files of killed writers."""
        paths = {part.path for part in self.parts()}
        for part in self._listed():
            if part.path not in paths and any(_within(part, self._part(path.name)) for path in paths):
                part.path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()

    def _stream(self, part: LogPart, upto: int, columns: Sequence[str] | None, batch: int) -> Iterator[pa.Table]:
        """Yield the rows of one part by `at`, even if it is compacted into another part before it is opened."""
        for _ in range(_TRIES):
            try:
                holder = next(one for one in self.parts() if _within(part, one))
                file = opened(holder.path)
            except FileNotFoundError:
                continue  # compacted meanwhile: its rows are in a wider part now
            with self._decoding(holder):
                yield from rows_of(file, holder, part.first - 1, min(part.last, upto), columns, batch)
            return
        raise StoreError(f"{self.folder}: {part.path.name} cannot be opened")

    def _listed(self) -> list[LogPart]:
        try:
            return [self._part(path.name) for path in self.folder.iterdir() if path.name.endswith(".parquet")]
        except FileNotFoundError:
            return []

    def _part(self, name: str) -> LogPart:
        """Return the part of a file from a cache, so that its footer is read once."""
        if name not in self._known:
            first, _, last = name.removesuffix(".parquet").partition("-")
            self._known[name] = LogPart(int(first), int(last), self.folder / name)
        return self._known[name]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Yield whether this process alone may change existing parts."""
        if not self.folder.is_dir():
            yield False
            return
        with storing(self.folder), tried(self.folder / ".compacting") as is_ours:
            yield is_ours

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        import filelock

        with filelock.FileLock(self.folder / ".lock"):
            yield


def _gap(cover: Sequence[LogPart]) -> str:
    wanted = 1
    for part in cover:
        if part.first != wanted:
            return f"the appends {wanted} to {part.first - 1} are in no file"
        wanted = part.last + 1
    return ""


def _within(part: LogPart, other: LogPart) -> bool:
    return other.first <= part.first and part.last <= other.last


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
