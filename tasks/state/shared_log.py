"""What all serving hosts of a project logged, as one Delta table below LOOPLINE_ROOT on S3.

A host writes ahead to its own disk; its compactor appends these records here, and who reads (monitoring, feedback)
copies new ones into its own logs (`tasks/state/ingest_segments.py`). A row is a record as the server wrote it:

| column | type | is |
|---|---|---|
| `append` | int64 | number of the commit that added it, from 1, over all hosts |
| `place` | int32 | its place within the append |
| `kind` | text | `predictions` or `labels` |
| `record` | text | the record, JSON |
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

from models.errors import StoreError
from tasks.host.store_addresses import ROOT, normalised
from tasks.state.delta_files import APPEND, MOST_ROWS

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

FOLDER = "served"
MOST_FILES = 64
"""Number of files from which they are merged."""
REPLACED_H = 1
"""Hours for which replaced files stay, for readers that began before."""
_TRIES = 30
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its errors
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": f"interval {REPLACED_H} hours",
    "delta.setTransactionRetentionDuration": "interval 365 days",
}


class SharedRecords(NamedTuple):
    """Records of some neighbouring appends, up to `upto`, in order: by kind, each with the number of its append."""

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
                if all((table.transaction_version(source) or 0) >= at for source, at in offsets.items()):
                    return 0
                number = (table.transaction_version(APPEND) or 0) + 1
                marks = [Transaction(APPEND, number)]
                marks += [Transaction(source, at, last_updated=_now_ms()) for source, at in offsets.items()]
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

    def scan(self, since: int) -> Iterator[SharedRecords]:
        """Yield the records of the appends after `since`, in order; some hundred thousand at a time."""
        import pyarrow.dataset as ds

        with self._reaching():
            table = self._opened()
            upto = (table.transaction_version(APPEND) or 0) if table else 0
            if upto < since:
                raise StoreError(
                    f"{self.address}: has {upto} appends, but {since} were read: it was emptied or is another table. "
                    "Put it back, or move the project's state folder away to read it from the start"
                )
            if table is None or upto == since:
                return
            rows = table.to_pyarrow_dataset()
            low = since
            for high in _cuts(table, since, upto):
                chosen = rows.to_table(filter=(ds.field(APPEND) > low) & (ds.field(APPEND) <= high))
                yield _records(chosen, high)
                low = high

    def compact(self) -> int:
        """Merge small files if there are many, and delete what was replaced long ago; return how many were merged."""
        from deltalake.exceptions import CommitFailedError

        with self._reaching():
            table = self._opened()
            if table is None or len(table.file_uris()) < MOST_FILES:
                return 0
            with contextlib.suppress(CommitFailedError):  # another host merges them
                merged = table.optimize.compact()["numFilesRemoved"]
                table.vacuum(retention_hours=REPLACED_H, enforce_retention_duration=False, dry_run=False)
                table.create_checkpoint()
                return int(merged)
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
        from deltalake.exceptions import DeltaError

        try:
            yield
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
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options = {"conditional_put": "etag", "connect_timeout": "5s", "timeout": "60s", "max_retries": "3"}
    return {**options, "aws_endpoint_url": endpoint, "allow_http": "true"} if endpoint else options


def _schema() -> pa.Schema:
    import pyarrow as pa

    names = {APPEND: pa.int64(), "place": pa.int32(), "kind": pa.string(), "record": pa.string(), "at": pa.int64()}
    return pa.schema(names)


def _rows(kind: str, records: Sequence[str], number: int) -> pa.Table:
    import pyarrow as pa

    count = len(records)
    columns = [[number] * count, range(count), [kind] * count, records, [time.time_ns() // 1000] * count]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _schema(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=_schema())


def _cuts(table: DeltaTable, since: int, upto: int) -> list[int]:
    """Return ends of spans of appends, each with about MOST_ROWS records, by the files' statistics."""
    import pyarrow as pa

    files = pa.table(table.get_add_actions(flatten=True)).select([f"max.{APPEND}", "num_records"]).to_pylist()
    cuts, rows = [], 0
    for file in sorted(files, key=lambda one: one[f"max.{APPEND}"]):
        if file[f"max.{APPEND}"] > since:
            rows += file["num_records"]
            if rows >= MOST_ROWS:
                cuts.append(file[f"max.{APPEND}"])
                rows = 0
    return sorted({*cuts, upto})


def _records(table: pa.Table, upto: int) -> SharedRecords:
    rows = table.sort_by([(APPEND, "ascending"), ("place", "ascending")])
    by_kind: dict[str, list[tuple[int, str]]] = {}
    columns = [rows.column(name).to_pylist() for name in (APPEND, "kind", "record")]
    for number, kind, record in zip(*columns, strict=True):
        by_kind.setdefault(kind, []).append((number, record))
    return SharedRecords(upto, by_kind)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
