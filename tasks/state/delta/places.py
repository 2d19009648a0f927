"""Where the files of a log are: in a folder of this disk, or in an object store that several hosts write.

delta-rs commits to both. On a disk it syncs nothing: what it commits is synced here before anybody builds on it, and of
a commit that a loss of power tore, nothing is left. An object is whole or not there.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from models.errors import StoreError
from models.files import DISK_IS_FULL, storing, sync, write_bytes
from tasks.host.object_store import ObjectStore, s3_settings
from tasks.host.store_addresses import ROOT
from tasks.state.delta.delta_files import APPEND, DamagedFileError, LogPart, opened

if TYPE_CHECKING:
    import pyarrow as pa
    from filelock import FileLock

COMMITS = "_delta_log"
FIRST_COMMIT = f"{COMMITS}/{0:020d}.json"
DAMAGED = "_damaged"
"""The folder within a log to which unreadable files are moved; Delta ignores names that begin with `_`."""
REPLACED_H = 1
"""Hours for which replaced files stay, for readers that began before."""
MARKS = "marks"
"""What a commit says of itself: how many application transactions end it."""
_CHECKPOINT = ".checkpoint.parquet"
_HINT = "_last_checkpoint"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its errors

_log = logging.getLogger("loopline.log")


class DiskPlace:
    """A folder of this disk; processes of this machine write it one after the other.

    Args:
        folder: The table's folder; the first writer creates it.
    """

    options: dict[str, str] | None = None
    unused_h = 0
    """Hours for which files stay that have forgotten rows and left the table; writers exclude each other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = str(folder)
        self._threads = threading.RLock()
        self._lock: FileLock | None = None

    def is_newest(self, version: int) -> bool:
        """Return whether no commit came after a version, -1 for none at all; costs a listing."""
        return _newest_commit(self.folder) == version

    def drop_torn_commit(self) -> None:
        """Delete the newest commit if a loss of power tore it: nobody was told of it, so what it adds comes again.

        Opening a table begins with it. delta-rs reads what is left of such a commit, and counts it.
        """
        newest = next(_commits(self.folder), None)
        if newest is not None and _is_torn(newest):
            with self.writing():
                if _is_torn(newest):  # still: another process may have made it anew
                    _log.warning("%s: torn by a loss of power: deleted, what it adds is added again", newest)
                    newest.unlink()

    def newest_cursor(self) -> int | None:
        """Return the number of the last append if the commits say it; imports neither Arrow nor delta-rs."""
        with contextlib.suppress(FileNotFoundError, ValueError):  # deleted meanwhile, or torn
            for path in _commits(self.folder):
                for action in _actions(path):
                    if action.get("txn", {}).get("appId") == APPEND:
                        return int(action["txn"]["version"])
        return None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude all other writers, which stand on a commit that is on disk; a holder may enter again.

        Raises:
            StoreError: The disk is full or cannot be written.
        """
        import filelock

        with storing(self.folder), self._threads:
            if self._lock is None:
                self._make()
                self._lock = filelock.FileLock(self.folder / ".lock", thread_local=False)
            is_inner = self._lock.is_locked
            with self._lock:
                if not is_inner:
                    self.settle()
                yield

    def commits_since_checkpoint(self) -> int:
        """Return how many commits the table has since its last checkpoint."""
        return commits_since_checkpoint(self.folder)

    def settle(self) -> None:
        """Put the newest commit on disk: delta-rs does not, and its writer may have been killed."""
        with contextlib.suppress(FileNotFoundError):  # there is no table, or a checkpoint has it
            if (newest := next(_commits(self.folder), None)) is not None:
                sync(newest)
            sync(self.folder / COMMITS)

    def begin(self, commit: bytes) -> None:
        """Write the commit that makes the table; within `writing` nobody else does."""
        write_bytes(self.folder / FIRST_COMMIT, commit)

    def write(self, name: str, content: pa.Buffer) -> None:
        """Write a new file; on return it is on disk."""
        write_bytes(self.folder / name, content)
        sync(self.folder)

    def source(self, name: str) -> Path:
        """Return what a reader opens for a file."""
        return self.folder / name

    def delete(self, names: Sequence[str]) -> None:
        """Delete files."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def keep_damaged(self, part: LogPart) -> Path:
        """Copy a damaged file, which leaves the table, to a folder for a person; return where it is."""
        aside = self.folder / DAMAGED / f"{part.first:012d}-{part.last:012d}.parquet"
        aside.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has kept it
            shutil.copy2(self.folder / part.name, aside)
        return aside

    def mend(self, error: Exception, attempt: int) -> None:
        """Drop what a loss of power damaged, if the table cannot be read twice."""
        del error
        if attempt:
            with contextlib.suppress(StoreError, OSError), self.writing():
                self._drop_damaged_checkpoint()

    def refused(self, error: Exception) -> StoreError:
        """Return the error of a table that cannot be read."""
        reason, cure = str(error).partition("\n")[0], f"put {COMMITS} back from a backup, or remove the folder"
        return StoreError(f"{self.folder}: the Delta table cannot be read ({reason}): {cure}")

    def unwritten(self, problem: str, error: Exception) -> StoreError:
        """Return the error of a table that cannot be written."""
        text = str(error).partition("\n")[0]
        cure = DISK_IS_FULL if "No space left" in text else "look whether the folder can be written"
        return StoreError(f"{self.folder}: {problem} ({text}): {cure}")

    def tidied(self, version: int) -> None:
        """Put a new checkpoint on disk, and delete what killed writers left among the commits."""
        commits = self.folder / COMMITS
        for name in (f"{version:020d}{_CHECKPOINT}", _HINT):
            sync(commits / name)
        sync(commits)
        old = time.time() - 3600 * REPLACED_H
        for path in commits.iterdir():
            if (path.name.endswith(".tmp") or "#" in path.name) and path.stat().st_mtime < old:
                path.unlink(missing_ok=True)

    def _make(self) -> None:
        """Make the folder, on disk: delta-rs syncs no folder that it makes."""
        if not (self.folder / COMMITS).exists():
            (self.folder / COMMITS).mkdir(parents=True, exist_ok=True)
            sync(self.folder)
            sync(self.folder.parent)

    def _drop_damaged_checkpoint(self) -> None:
        """Delete the newest checkpoint if it is damaged: delta-rs gives it its name before it is on disk."""
        newest = max((name for name in _names(self.folder) if name.endswith(_CHECKPOINT)), default=None)
        if newest is None:
            return
        try:
            opened(self.folder / COMMITS / newest, str(self.folder / COMMITS / newest)).close()
        except DamagedFileError as error:
            _log.warning("%s; it was deleted: the commits before it say the same", error)
            (self.folder / COMMITS / _HINT).unlink(missing_ok=True)
            (self.folder / COMMITS / newest).unlink(missing_ok=True)


class SharedPlace:
    """A prefix of an object store; of two hosts that commit at once, one is refused.

    Args:
        address: `s3://bucket/prefix`, or `file:///folder`.
    """

    unused_h = REPLACED_H
    """Hours for which files stay that have forgotten rows and left the table: a host may be about to commit one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._threads = threading.RLock()

    @cached_property
    def options(self) -> dict[str, str]:
        """How delta-rs reaches it."""
        options = {"conditional_put": "etag", "connect_timeout": "5s", "timeout": "60s", "max_retries": "3"}
        return {**options, **s3_settings()} if self.address.startswith("s3://") else {}

    def is_newest(self, version: int) -> bool:
        """Return False: another host may have written."""
        del version
        return False

    def drop_torn_commit(self) -> None:
        """Do nothing: an object is whole."""

    def writing(self) -> threading.RLock:
        """Exclude the other threads, which share a table; of two commits of hosts with one number, one is refused."""
        return self._threads

    def commits_since_checkpoint(self) -> int:
        """Return 0: here merging alone is followed by a checkpoint."""
        return 0

    def settle(self) -> None:
        """Do nothing: a commit is stored when the store says so."""

    def begin(self, commit: bytes) -> None:
        """Write the commit that makes the table, unless another host was first."""
        self._store.create(FIRST_COMMIT, commit)

    def write(self, name: str, content: pa.Buffer) -> None:
        """Write a new object."""
        self._store.put(name, content.to_pybytes())

    def source(self, name: str) -> IO[bytes]:
        """Return an object's content.

        Raises:
            FileNotFoundError: There is none.
        """
        content = self._store.get(name)
        if content is None:
            raise FileNotFoundError(f"{self.address}/{name}")
        return io.BytesIO(content)

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects."""
        self._store.delete(names)

    def keep_damaged(self, part: LogPart) -> Path:
        """Refuse to let a file go: no loss of power damages an object, and a copy has it whole.

        Raises:
            StoreError: Always.
        """
        cure = "put its files back from a copy, or delete the table: a new one is read from its start"
        raise StoreError(f"{ROOT}: {self.address}: the log is damaged ({part.name}): {cure}")

    def mend(self, error: Exception, attempt: int) -> None:
        """Refuse: the store answers, or it does not.

        Raises:
            StoreError: Always.
        """
        del attempt
        raise self.refused(error) from error

    def refused(self, error: Exception) -> StoreError:
        """Return the error of a table that cannot be reached."""
        text = " ".join(_COLOUR.sub("", str(error)).split())[:300]
        cure = "what is not there yet waits on this disk: run again when it answers, or correct AWS_ENDPOINT_URL"
        return StoreError(f"{ROOT}: {self.address}: the log cannot be used ({text}): {cure}")

    def unwritten(self, problem: str, error: Exception) -> StoreError:
        """Return the error of a table that cannot be written."""
        del problem
        return self.refused(error)

    def tidied(self, version: int) -> None:
        """Do nothing: delta-rs leaves nothing unfinished there."""

    @cached_property
    def _store(self) -> ObjectStore:
        return ObjectStore(self.address)


Place = DiskPlace | SharedPlace


def commits_since_checkpoint(folder: Path) -> int:
    """Return how many commits a table has since its last checkpoint; imports neither Arrow nor delta-rs."""
    checkpoints = (int(name[:20]) for name in _names(folder) if name.endswith(_CHECKPOINT))
    return _newest_commit(folder) - max(checkpoints, default=-1)


def _is_torn(commit: Path) -> bool:
    try:
        return not _actions(commit)
    except FileNotFoundError:  # deleted meanwhile
        return False
    except ValueError:
        return True


def _actions(commit: Path) -> list[dict[str, Any]]:
    """Return the lines of a commit; none if it lacks its end, the application transactions.

    Raises:
        ValueError: A line is no JSON.
    """
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    marks = next((action["commitInfo"].get(MARKS, 0) for action in actions if "commitInfo" in action), 0)
    return actions if sum("txn" in action for action in actions) >= marks else []


def _newest_commit(folder: Path) -> int:
    return max((int(name[:20]) for name in _names(folder) if name[20:] == ".json"), default=-1)


def _commits(folder: Path) -> Iterator[Path]:
    """Yield the commits, newest first."""
    for name in sorted(_names(folder), reverse=True):
        if name[20:] == ".json":
            yield folder / COMMITS / name


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder / COMMITS) as entries:
            return [file.name for file in entries]
    except FileNotFoundError:
        return []
