"""An append-only log of rows as Parquet parts, which any number of processes write, read and compact at once.

A part is one file, `<first>-<last>.parquet`: the numbers count appends, from 1. An append writes, syncs and renames its
file under a lock, so acknowledged rows are on disk and the numbers have no gaps. Compaction writes the rows of several
parts into one file whose name spans theirs; from its rename on, the parts that it spans are ignored, and then deleted.
So a reader sees each row once, whatever it lists while files come and go: a wider part hides the parts within it, and a
gap means that the listing is older than the disk, so it lists again. Within a part rows are in the order of `at`.

A part that cannot be read is set aside: its file goes to `damaged/`, and an empty part takes its place, so that its
rows are gone and nothing else is.
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
"""Neighbours that are worth writing anew; each row is then written about log8(rows) times in all."""
STALE_S = 3600.0
DAMAGED = "damaged"
"""The folder within a log to which unreadable parts are moved."""
_TRIES, _TRY_S = 200, 0.01
_log = logging.getLogger("loopline.log")


class PartLog:
    """The log in one folder.

    Args:
        folder: Made at the first append.
        fields: Columns that every row has, with their types; others may differ from append to append.
    """

    def __init__(self, folder: Path, fields: pa.Schema) -> None:
        self.folder = folder
        self._fields = fields
        self._known: dict[str, LogPart] = {}

    def append(self, table: pa.Table, key: str | None = None, offsets: Mapping[str, int] | None = None) -> int:
        """Add rows; when this returns they are on disk. The cursor after them.

        Args:
            table: The rows, `at` among their columns; a column of `fields` that is absent is null.
            key: The same key again adds nothing, so that work that was killed may be done again.
            offsets: How far sources that grow were read for them, in the same file as the rows; see `offsets`.

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
        """Whether an append of this key is in the log."""
        return any(key in part.keys for part in self.parts())

    def offsets(self) -> dict[str, int]:
        """How far each source was read, by the rows in the log: a reader that starts there adds each row once."""
        offsets: dict[str, int] = {}
        for part in self.parts():
            for source, offset in part.offsets.items():
                offsets[source] = max(offset, offsets.get(source, 0))
        return offsets

    def cursor(self) -> int:
        """The number of the last append; 0 for an empty log. Compacting does not change it."""
        parts = self._listed()
        return max((part.last for part in parts), default=0)

    def parts(self, since: int = 0) -> list[LogPart]:
        """The parts that hold the appends after `since`, oldest first, each append in one.

        Raises:
            StoreError: A file is gone that no other one holds.
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
        """The rows of the appends after cursor `since`, up to cursor `upto`, in the order of the appends.

        Each table has those of `columns` that its part has (default: all), and at most `batch` rows. Call `cursor()`
        before, pass it as `upto` and store it: the next scan starts there, and no row is seen twice. `numbered` adds
        the number of each row's append, column `SEQUENCE`.
        """
        upto = self.cursor() if upto is None else upto
        while since < upto and (parts := self.parts(since)):  # none: all were removed, and `upto` is of before
            for part in parts:
                if part.first > upto:
                    return
                try:
                    file = opened(part.path)
                except FileNotFoundError:
                    break  # compacted meanwhile: listed anew, from where we are
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
        """The rows whose `at` is in [since_us, until_us), by `at`, whatever order they were appended in.

        Only the parts whose times overlap are open at once; together they hold about 262,144 rows in memory.
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
        """Merge small neighbours and remove what is left over. How many parts were merged into others.

        Safe to kill at any moment, and beside any number of readers and writers; a second compactor leaves at once.

        Args:
            growing: Sources that are still read; the offsets of others are dropped. None: all are stored.
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
        """Drop the rows whose `at` is before `before_us`; how many. Cursors and keys stay what they were.

        The part is rewritten under its own name without them: this is safe to kill at any moment, and a reader that has
        the old file open reads it to its end.

        Args:
            before_us: Microseconds since 1970.
            spared: Which of some old rows are not deleted, bool (rows,).

        Raises:
            StoreError: The disk is full; what was dropped so far stays so.
        """
        dropped = 0
        with self._alone() as is_alone:
            for part in self.parts() if is_alone else []:
                if part.times[0] < before_us:
                    dropped += self._rewrite(part, before_us, spared)
        return dropped

    def summary(self) -> dict[str, Any]:
        """`rows`, `parts`, `bytes`, and `since` and `until`, the first and last `at` in seconds (None when empty)."""
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
        """The required columns first and of their type, rows in the order of `at`."""
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
            os.fsync(handle)  # the name too is on disk
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
        """The part without its old rows, in its own place; how many were dropped."""
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
            del self._known[part.path.name]  # what its footer said is no longer so
        return dropped

    def _replace(self, temporary: Path, first: int, last: int) -> None:
        try:
            with self._locked():
                self._publish(temporary, first, last)
        finally:
            temporary.unlink(missing_ok=True)

    def _check(self, part: LogPart) -> None:
        """Read the footer of a part; set the part aside if that cannot be read."""
        try:
            _ = part.metadata
        except DamagedPartError as error:
            self._set_aside(part, error)
            _ = part.metadata

    @contextlib.contextmanager
    def _decoding(self, part: LogPart) -> Iterator[None]:
        """Set the part aside if its rows cannot be decoded; the reader starts again without it."""
        try:
            yield
        except DamagedPartError as error:
            raise StoreError(f"{self._set_aside(part, error)}: run again") from error

    def _set_aside(self, part: LogPart, error: DamagedPartError) -> str:
        """Replace a damaged part by an empty one, and move its file aside; returns a message about what is lost."""
        aside = self.folder / DAMAGED / part.path.name
        with storing(self.folder), self._locked():
            if not self._is_empty(part):  # as it is once another process has set it aside
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
        """Delete parts that a wider one holds, and what killed writers left."""
        paths = {part.path for part in self.parts()}
        for part in self._listed():
            if part.path not in paths and any(_within(part, self._part(path.name)) for path in paths):
                part.path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()

    def _stream(self, part: LogPart, upto: int, columns: Sequence[str] | None, batch: int) -> Iterator[pa.Table]:
        """The rows of one part by `at`, though it may be compacted into another before it is opened."""
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
        """One object a file, so that its footer is read once."""
        if name not in self._known:
            first, _, last = name.removesuffix(".parquet").partition("-")
            self._known[name] = LogPart(int(first), int(last), self.folder / name)
        return self._known[name]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether no other process changes parts that are there, and this one may."""
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
    """The first run of neighbours of the smallest size that is long enough, or full; empty when there is none."""
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
