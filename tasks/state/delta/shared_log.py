"""What all serving hosts of a project logged, as one Delta table below LOOPLINE_ROOT on S3.

A host writes ahead to its own disk; its compactor appends these records here, and who reads (monitoring, feedback)
copies new ones into its own logs (`tasks/state/ingest_segments.py`). A row is a record as the server wrote it:

| column | type | is |
|---|---|---|
| `append` | int64 | number of the commit that added it, from 1, over all hosts |
| `place` | int32 | its place within the append |
| `kind` | text | `predictions` or `labels` |
| `record` | text | the record, JSON |
| `size_bytes` | int32 | its length |
| `at` | int64 | when it was added, microseconds since 1970 |

Each commit has its number, and how far the sources were read, as application transactions. Of two hosts that commit at
once, S3 refuses one (a conditional put), and it takes the next number. So nothing is added twice, and no number is
left out.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.errors import StoreError, one_line
from tasks.host.object_store import s3_settings
from tasks.host.store_addresses import ROOT, normalised
from tasks.state.delta.delta_files import APPEND

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

FOLDER = "served"
MOST_FILES = 64
"""Number of files from which they are merged."""
REPLACED_H = 1
"""Hours for which replaced files stay, for readers that began before."""
SPAN_BYTES = 1 << 24
"""Size of the records that are read together; a receiver needs some ten times as much memory."""
_READ_AHEAD = {"batch_size": 4096, "batch_readahead": 1, "fragment_readahead": 1}
_TRIES = 30
_MERGE, _FULL = "merge", "full"
"""Application transactions: the number of a merge, and the append up to which files have their full size."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its errors
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": f"interval {REPLACED_H} hours",
    "delta.setTransactionRetentionDuration": "interval 365 days",
}


class SharedRecords(NamedTuple):
    """Records of neighbouring appends of a table, up to `upto`: by kind, in order, each with its append's number."""

    table: str
    upto: int
    by_kind: dict[str, list[tuple[int, str]]]


class SharedLog:
    """The table at one address.

    Args:
        address: `s3://bucket/prefix/...`, or a folder.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def append(self, kind: str, records: Sequence[str], offsets: Mapping[str, int]) -> int:
        """Add records; on return they are in the table. Return the number of this append; 0 if nothing was added.

        Args:
            kind: `predictions` or `labels`.
            records: The records, JSON.
            offsets: How far sources were read for them, at least one; what the table has by them is not added again.

        Raises:
            StoreError: The table cannot be reached or written; nothing was added, or a repetition adds nothing.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        if not records:
            return 0
        with self._reaching():
            for attempt in range(_TRIES):
                table = self._opened(create=True)
                assert table is not None
                if all((table.transaction_version(source) or 0) >= offset for source, offset in offsets.items()):
                    return 0
                number = (table.transaction_version(APPEND) or 0) + 1
                marks = [Transaction(APPEND, number)]
                marks += [Transaction(source, offset, last_updated=_now_ms()) for source, offset in offsets.items()]
                marked = CommitProperties(app_transactions=marks)
                try:
                    write_deltalake(table, _rows(kind, records, number), mode="append", commit_properties=marked)
                    return number
                except CommitFailedError:  # another host was first
                    time.sleep(random.uniform(0, 0.05 * (attempt + 1)))  # noqa: S311 - no secret
        raise StoreError(f"{self.address}: other hosts were first {_TRIES} times: the records wait, run again")

    def offsets(self, sources: Iterable[str]) -> dict[str, int]:
        """Return how far some sources were read for the records of the table."""
        with self._reaching():
            table = self._opened()
            return {source: (table.transaction_version(source) or 0) if table else 0 for source in sources}

    def cursor(self) -> int:
        """Return the number of the last append; 0 for an empty table."""
        return self.offsets([APPEND])[APPEND]

    def scan(self, since: int, identity: str = "") -> Iterator[SharedRecords]:
        """Yield the records of the appends after `since`, in order; about SPAN_BYTES at a time.

        Args:
            since: The last append that was read.
            identity: The table of which it was read (`SharedRecords.table`); another one is read from its start.

        Raises:
            StoreError: The table cannot be read, or lacks what was read of it.
        """
        with self._reaching():
            table = self._opened()
            upto = (table.transaction_version(APPEND) or 0) if table else 0
            table_id = str(table.metadata().id) if table else identity
            since = since if identity in ("", table_id) else 0
            if upto < since:
                raise StoreError(
                    f"{self.address}: has {upto} appends, but {since} were read: it was emptied or is an older copy. "
                    "Put it back, or delete it: a new one is read from its start"
                )
            if table is None or upto == since:
                return
            rows = table.to_pyarrow_dataset()
            low = since
            for high in _cuts(rows, since, upto):
                yield _records(_span(rows, low, high), table_id, high)
                low = high

    def compact(self) -> int:
        """Merge small files if there are many, and delete what was replaced long ago; return how many files went.

        Not by `optimize`, of which delta-rs lets two merge the same files: the rows are there twice then.
        """
        from deltalake.exceptions import CommitFailedError

        with self._reaching():
            table = self._opened()
            before = len(table.file_uris()) if table else 0
            if table is None or before < MOST_FILES:
                return 0
            with contextlib.suppress(CommitFailedError):  # another host merges them
                while not _merge(table):
                    table = self._opened() or table
                table = self._opened() or table
                table.vacuum(retention_hours=REPLACED_H, enforce_retention_duration=False, dry_run=False)
                table.create_checkpoint()
                return before - len(table.file_uris())
            return 0

    def forget(self, before_us: int) -> None:
        """Delete the records that were added before a time (microseconds since 1970); cursors do not change."""
        from deltalake.exceptions import CommitFailedError

        with self._reaching():
            table = self._opened()
            if table is not None:
                with contextlib.suppress(CommitFailedError):  # another host deletes them
                    table.delete(f"at < {before_us}")
                    table.vacuum(retention_hours=REPLACED_H, enforce_retention_duration=False, dry_run=False)

    def _opened(self, *, create: bool = False) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        options = _options() if "://" in self.address else None
        try:
            return DeltaTable(self.address, storage_options=options)
        except TableNotFoundError:
            if not create:
                return None
        with contextlib.suppress(DeltaError):  # another host makes it
            DeltaTable.create(self.address, _schema(), configuration=_CONFIGURATION, storage_options=options)
        return DeltaTable(self.address, storage_options=options)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Convert errors of the table to a StoreError that names the cure."""
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        try:
            yield
        except pa.ArrowInvalid as error:
            text = one_line(error)
            cure = "put its files back from a copy, or delete the table: a new one is read from its start"
            raise StoreError(f"{ROOT}: {self.address}: the log is damaged ({text}): {cure}") from error
        except (DeltaError, OSError) as error:
            text = " ".join(_COLOUR.sub("", str(error)).split())[:300]
            cure = "what is not there yet waits on this disk: run again when it answers, or correct AWS_ENDPOINT_URL"
            raise StoreError(f"{ROOT}: {self.address}: the log cannot be used ({text}): {cure}") from error


def shared_log(state: Path) -> SharedLog | None:
    """Return the log that all hosts of a project share; None unless LOOPLINE_ROOT names S3.

    Args:
        state: The project's folder under `.loopline/projects/`.
    """
    root = os.environ.get(ROOT, "")
    if not root.startswith("s3://"):
        return None
    return SharedLog(f"{normalised(ROOT, root).rstrip('/')}/projects/{state.name}/{FOLDER}")


def _options() -> dict[str, str]:
    options = {"conditional_put": "etag", "connect_timeout": "5s", "timeout": "60s", "max_retries": "3"}
    return {**options, **s3_settings()}


def _schema() -> pa.Schema:
    import pyarrow as pa

    names = {APPEND: pa.int64(), "place": pa.int32(), "kind": pa.string(), "record": pa.string()}
    return pa.schema({**names, "size_bytes": pa.int32(), "at": pa.int64()})


def _rows(kind: str, records: Sequence[str], number: int) -> pa.Table:
    import pyarrow as pa

    count, sizes = len(records), [len(record.encode()) for record in records]
    columns = [[number] * count, range(count), [kind] * count, records, sizes, [time.time_ns() // 1000] * count]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _schema(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=_schema())


def _cuts(rows: ds.Dataset, since: int, upto: int) -> list[int]:
    """Return ends of spans of appends, each with about SPAN_BYTES of records or one append."""
    import pyarrow.dataset as ds

    new = rows.scanner(columns=[APPEND, "size_bytes"], filter=ds.field(APPEND) > since)
    sizes = new.to_table().group_by(APPEND).aggregate([("size_bytes", "sum")]).sort_by(APPEND).to_pydict()
    cuts, filled = [], 0
    for number, size in zip(sizes[APPEND], sizes["size_bytes_sum"], strict=True):
        if filled and filled + size > SPAN_BYTES:
            cuts.append(number - 1)
            filled = 0
        filled += size
    return sorted({*cuts, upto})


def _merge(table: DeltaTable) -> bool:
    """Write one file for the first span of appends that has none of full size; return whether it was the last span.

    Raises:
        CommitFailedError: Another host replaced files since the table was opened.
    """
    from deltalake import CommitProperties, Transaction, write_deltalake

    low, upto = table.transaction_version(_FULL) or 0, table.transaction_version(APPEND) or 0
    rows = table.to_pyarrow_dataset()
    high = _cuts(rows, low, upto)[0]
    # Of two commits with the same number one is refused.
    marks = [Transaction(_MERGE, (table.transaction_version(_MERGE) or 0) + 1)]
    marks.append(Transaction(_FULL, high if high < upto else low))
    write_deltalake(
        table,
        _span(rows, low, high),
        mode="overwrite",
        predicate=f"{APPEND} > {low} AND {APPEND} <= {high}",
        commit_properties=CommitProperties(app_transactions=marks),
    )
    return high == upto


def _span(rows: ds.Dataset, low: int, high: int) -> pa.Table:
    """Return the rows of the appends after `low` up to `high`, in order."""
    import pyarrow.dataset as ds

    chosen = (ds.field(APPEND) > low) & (ds.field(APPEND) <= high)
    span = rows.scanner(filter=chosen, **_READ_AHEAD).to_table()
    return span.sort_by([(APPEND, "ascending"), ("place", "ascending")])


def _records(rows: pa.Table, table: str, upto: int) -> SharedRecords:
    by_kind: dict[str, list[tuple[int, str]]] = {}
    columns = [rows.column(name).to_pylist() for name in (APPEND, "kind", "record")]
    for number, kind, record in zip(*columns, strict=True):
        by_kind.setdefault(kind, []).append((number, record))
    return SharedRecords(table, upto, by_kind)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
