"""Commits of a Delta table on a local disk: written durably, read without delta-rs where that is enough.

delta-rs does not sync what it writes on a local disk, and cannot replace some files by others and keep their order.
Here a file is on disk before a commit names it, and a commit is on disk before it has its name; so neither a kill nor a
loss of power leaves a table that cannot be read. delta-rs reads the table, writes checkpoints and finds unused files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError
from models.files import DISK_IS_FULL, sync
from tasks.state.delta.delta_files import APPEND, DamagedFileError, LogPart, opened

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

COMMITS = "_delta_log"
REPLACED_H = 1
"""Hours for which replaced files stay, for readers that began before."""
_CHECKPOINT = ".checkpoint.parquet"
_HINT = "_last_checkpoint"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NTZ = ["timestampNtz"]
_PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _NTZ, "writerFeatures": _NTZ}
_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 5 minutes",  # each opening lists all commits
    "delta.deletedFileRetentionDuration": f"interval {REPLACED_H} hours",
    "delta.setTransactionRetentionDuration": "interval 365 days",
}

_log = logging.getLogger("loopline.log")

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
    checkpoints = (int(name[:20]) for name in _names(folder) if name.endswith(_CHECKPOINT))
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
    """Write a checkpoint; delete older commits after minutes, and unused files after an hour.

    Raises:
        StoreError: delta-rs cannot write or delete, such as on a full disk. The table stays as it was.
    """
    from deltalake.exceptions import DeltaError

    commits = folder / COMMITS
    try:
        # First: so what was there before the new checkpoint stays, for readers that are opening the table, and in case
        # a loss of power damages the new checkpoint.
        table.cleanup_metadata()
        table.create_checkpoint()
        for name in (f"{table.version():020d}.checkpoint.parquet", _HINT):
            sync(commits / name)
        sync(commits)
        unused = table.vacuum(retention_hours=REPLACED_H, enforce_retention_duration=False, full=True)
    except DeltaError as error:
        text = str(error).partition("\n")[0]
        cure = (
            DISK_IS_FULL if "No space left" in text else "look whether the disk is full and the folder can be written"
        )
        raise StoreError(f"{folder}: no checkpoint was made ({text}): {cure}") from error
    old = time.time() - 3600 * REPLACED_H
    stale = [path for path in commits.glob(".*.tmp") if path.stat().st_mtime < old]
    for path in (*(folder / name for name in unused), *stale):
        path.unlink(missing_ok=True)


def drop_damaged_checkpoint(folder: Path) -> bool:
    """Delete the newest checkpoint if it is damaged; return whether it was. The one before it and the commits say all.

    A loss of power can damage it, because delta-rs gives it its name before it is on disk.
    """
    newest = max((name for name in _names(folder) if name.endswith(_CHECKPOINT)), default=None)
    if newest is None:
        return False
    path = folder / COMMITS / newest
    try:
        opened(path).close()
    except DamagedFileError as error:
        _log.warning("%s; it was deleted: the commits before it say the same", error)
        (folder / COMMITS / _HINT).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        return True
    return False


def schema_of(table: DeltaTable) -> pa.Schema:
    """Return the schema of a table as Arrow's."""
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _file(part: LogPart) -> Action:
    begin, end = (
        (_EPOCH + timedelta(microseconds=instant)).isoformat(timespec="microseconds") for instant in part.times
    )
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
            return [file.name for file in entries]
    except FileNotFoundError:
        return []
