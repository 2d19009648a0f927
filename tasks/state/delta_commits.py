"""Commits of a Delta table on a local disk: written durably, read without delta-rs where that is enough.

delta-rs does not sync what it writes on a local disk, and cannot replace some files by others and keep their order.
Here a file is on disk before a commit names it, and a commit is on disk before it has its name; so neither a kill nor a
loss of power leaves a table that cannot be read. delta-rs reads the table, writes checkpoints and finds unused files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.state.delta_files import APPEND, LogPart, sync

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

COMMITS = "_delta_log"
REPLACED_H = 1
"""Hours for which replaced files stay, for readers that began before."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NTZ = ["timestampNtz"]
_PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _NTZ, "writerFeatures": _NTZ}
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 5 minutes",  # each opening lists all commits
    "delta.deletedFileRetentionDuration": f"interval {REPLACED_H} hours",
    "delta.setTransactionRetentionDuration": "interval 365 days",
}

Action = dict[str, Any]
"""A line of a commit. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""


def commit(
    folder: Path,
    cursor: int,
    removed: Sequence[LogPart],
    added: Sequence[LogPart],
    actions: Sequence[Action] = (),
    *,
    is_same: bool = False,
) -> None:
    """Write the next commit of a table; on return it is on disk.

    Args:
        folder: The table's folder; the caller excludes other writers.
        cursor: The number of the last append, this one included.
        removed: Files that leave the table.
        added: Files that come into it; they are on disk already.
        actions: Other transactions, and the declaration of a new schema.
        is_same: The added rows are those of the removed files.

    Raises:
        OSError: The disk is full or cannot be written, or another program made this commit. Nothing was changed;
            `tidy` deletes the added files.
    """
    commits, now, changes = folder / COMMITS, now_ms(), {"dataChange": not is_same}
    commits.mkdir(exist_ok=True)
    lines: list[Action] = [{"commitInfo": {"timestamp": now, "engineInfo": "loopline"}}]
    lines += [transaction(APPEND, cursor), *actions]
    lines += [{"remove": {"path": part.path.name, "deletionTimestamp": now, **changes}} for part in removed]
    lines += [{"add": {**_file(part), **changes}} for part in added]
    temporary = commits / f".{os.getpid()}-{uuid.uuid4().hex[:12]}.tmp"
    try:
        temporary.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        sync(temporary)
        os.link(temporary, commits / f"{newest_commit(folder) + 1:020d}.json")
    finally:
        temporary.unlink(missing_ok=True)
    for path in (commits, folder, folder.parent):
        sync(path)


def newest_commit(folder: Path) -> int:
    """Return the version of the newest commit; -1 if there is none."""
    return max((int(name[:20]) for name in _names(folder) if name[20:] == ".json"), default=-1)


def commits_since_checkpoint(folder: Path) -> int:
    """Return how many commits a table has since its last checkpoint; imports neither Arrow nor delta-rs."""
    checkpoints = (int(name[:20]) for name in _names(folder) if name.endswith(".checkpoint.parquet"))
    return newest_commit(folder) - max(checkpoints, default=-1)


def newest_cursor(folder: Path) -> int | None:
    """Return the number of the last append if the newest commit says it: only those of other programs do not."""
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / COMMITS / f"{newest_commit(folder):020d}.json").read_text().splitlines():
            action = json.loads(line).get("txn", {})
            if action.get("appId") == APPEND:
                return int(action["version"])
    return None


def transaction(source: str, version: int, updated_ms: int | None = None) -> Action:
    """Return an application transaction; with `updated_ms` Delta forgets it a year after that time."""
    return {"txn": {"appId": source, "version": version, **({"lastUpdated": updated_ms} if updated_ms else {})}}


def declaration(schema: pa.Schema, table: DeltaTable | None) -> list[Action]:
    """Return the actions that give a table its schema; without a table also those that begin one."""
    from deltalake import Schema

    metadata = {
        "id": str(uuid.uuid4() if table is None else table.metadata().id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(schema).to_json(),
        "partitionColumns": [],
        "configuration": _CONFIGURATION,
        "createdTime": now_ms(),
    }
    return [*([{"protocol": _PROTOCOL}] if table is None else []), {"metaData": metadata}]


def tidy(table: DeltaTable, folder: Path) -> None:
    """Write a checkpoint; delete older commits after minutes, and unused files after an hour."""
    commits = folder / COMMITS
    table.create_checkpoint()
    for name in ("_last_checkpoint", f"{table.version():020d}.checkpoint.parquet"):
        sync(commits / name)
    sync(commits)
    table.cleanup_metadata()  # only now: what the deleted commits say is in the checkpoint alone
    unused = table.vacuum(retention_hours=REPLACED_H, enforce_retention_duration=False, full=True)
    old = time.time() - 3600 * REPLACED_H
    stale = [path for path in commits.glob(".*.tmp") if path.stat().st_mtime < old]
    for path in (*(folder / name for name in unused), *stale):
        path.unlink(missing_ok=True)


def schema_of(table: DeltaTable) -> pa.Schema:
    """Return the schema of a table as Arrow's."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _file(part: LogPart) -> Action:
    begin, end = ((_EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds") for at in part.times)
    spans = {"minValues": {APPEND: part.first, "at": begin}, "maxValues": {APPEND: part.last, "at": end}}
    return {
        "path": part.path.name,
        "partitionValues": {},
        "size": part.path.stat().st_size,
        "modificationTime": now_ms(),
        "stats": json.dumps({"numRecords": part.rows, **spans}),
    }


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder / COMMITS) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return []
