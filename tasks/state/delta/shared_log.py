"""What all serving hosts of a project logged, as one log below LOOPLINE_ROOT on S3.

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

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from models.errors import StoreError
from tasks.host.store_addresses import ROOT, normalised
from tasks.state.delta.delta_files import APPEND
from tasks.state.delta.delta_log import OrderedLog
from tasks.state.delta.places import SharedPlace

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "served"
MOST_FILES = 64
"""Number of appends after which a host merges files."""
MERGED_BYTES = 1 << 22
"""Maximum bytes of a merged file, compressed."""
SPAN_BYTES = 1 << 24
"""Size of the records that are yielded together; a receiver needs some ten times as much memory."""


class SharedRecords(NamedTuple):
    """Records of neighbouring appends of a table, up to `upto`: by kind, in order, each with its append's number."""

    table: str
    upto: int
    by_kind: dict[str, list[tuple[int, str]]]


class SharedLog(OrderedLog):
    """The log at one address.

    Args:
        address: `s3://bucket/prefix/...`, or `file:///folder`.
    """

    def __init__(self, address: str) -> None:
        super().__init__(SharedPlace(address), _fields(), MERGED_BYTES)
        self.address = address

    def add(self, kind: str, records: Sequence[str], offsets: Mapping[str, int]) -> int:
        """Add records; on return they are in the table. Return the number of this append; 0 if nothing was added.

        Args:
            kind: `predictions` or `labels`.
            records: The records, JSON.
            offsets: How far sources were read for them, at least one; what the table has by them is not added again.

        Raises:
            StoreError: The table cannot be reached or written; nothing was added, or a repetition adds nothing.
        """
        return self.added(_rows(kind, records), offsets=offsets)

    def records(self, since: int, identity: str = "") -> Iterator[SharedRecords]:
        """Yield the records of the appends after `since`, in order; about SPAN_BYTES at a time.

        Args:
            since: The last append that was read.
            identity: The table of which it was read (`SharedRecords.table`); another one is read from its start.

        Raises:
            StoreError: The table cannot be read, or lacks what was read of it.
        """
        upto, table = self.cursor(), self.identity() or identity
        since = since if identity in ("", table) else 0
        if upto < since:
            raise StoreError(
                f"{self.address}: has {upto} appends, but {since} were read: it was emptied or is an older copy. "
                "Put it back, or delete it: a new one is read from its start"
            )
        if upto == since:
            return
        by_kind: dict[str, list[tuple[int, str]]] = {}
        filled = 0
        for number, rows in groupby(self._ordered(since, upto), itemgetter(0)):
            added = sorted(rows)  # by their places: files that delta-rs merged are not in order
            size = sum(len(record) for *_, record in added)
            if filled and filled + size > SPAN_BYTES:
                yield SharedRecords(table, number - 1, by_kind)
                by_kind, filled = {}, 0
            for _, _, kind, record in added:
                by_kind.setdefault(kind, []).append((number, record))
            filled += size
        yield SharedRecords(table, upto, by_kind)

    def _ordered(self, since: int, upto: int) -> Iterator[tuple[int, int, str, str]]:
        names = (APPEND, "place", "kind", "record")
        for table in self.scan(since, upto, names, numbered=True):
            yield from zip(*(table.column(name).to_pylist() for name in names), strict=True)


def shared_log(state: Path) -> SharedLog | None:
    """Return the log that all hosts of a project share; None unless LOOPLINE_ROOT names S3.

    Args:
        state: The project's folder under `.loopline/projects/`.
    """
    root = os.environ.get(ROOT, "")
    if not root.startswith("s3://"):
        return None
    return SharedLog(f"{normalised(ROOT, root).rstrip('/')}/projects/{state.name}/{FOLDER}")


def _fields() -> pa.Schema:
    import pyarrow as pa

    names = {"place": pa.int32(), "kind": pa.string(), "record": pa.string()}
    return pa.schema({**names, "size_bytes": pa.int32(), "at": pa.int64()})


def _rows(kind: str, records: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    count, sizes = len(records), [len(record.encode()) for record in records]
    columns = [range(count), [kind] * count, records, sizes, [time.time_ns() // 1000] * count]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _fields(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=_fields())
