"""What could be removed: a thing of one kind, its bytes, and why it is kept."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tasks.gc.snapshot import Snapshot

if TYPE_CHECKING:
    from sqlalchemy import Connection


class GarbageCandidate(NamedTuple):
    """A stored thing that goes unless something keeps it.

    Args:
        project: The project's name; empty where several share it.
        name: How people find it: a path in the workspace, or the number of a row.
        size: Bytes; of rows about.
        reason: Why it stays; empty: it is garbage.
        path: The file or folder that it is; None for rows and what other tools hold.
    """

    project: str
    name: str
    size: int
    reason: str
    path: Path | None = None


def _no_rows(_: Connection, __: str, ___: Sequence[GarbageCandidate]) -> None:
    """Change no row: nothing in the state database names this kind."""


def _no_objects(_: Snapshot, __: str, ___: Sequence[GarbageCandidate], ____: Callable[[], None]) -> None:
    """Delete nothing while the project is held: its files are renamed, and no bytes of it lie elsewhere."""


def _no_bytes(_: Snapshot, __: Sequence[GarbageCandidate]) -> None:
    """Remove nothing more: the rows, or the files that were set aside, were all."""


class Kind(NamedTuple):
    """A kind of garbage.

    Rows go before bytes: what a kill leaves is named by nothing and is found the next time.

    Args:
        name: For people.
        candidates: Lists what there is of it.
        withdraw: Removes the rows that name garbage of a project, in the transaction that has checked the project.
        delete: Deletes bytes that the next loop might use again, while the project is held; it calls the function that
            raises unless it still is.
        remove: Removes bytes that no row names any more and that lie in no path of their own.
    """

    name: str
    candidates: Callable[[Snapshot], Iterable[GarbageCandidate]]
    withdraw: Callable[[Connection, str, Sequence[GarbageCandidate]], None] = _no_rows
    delete: Callable[[Snapshot, str, Sequence[GarbageCandidate], Callable[[], None]], None] = _no_objects
    remove: Callable[[Snapshot, Sequence[GarbageCandidate]], None] = _no_bytes


def of_path(snapshot: Snapshot, project: str, path: Path, days: float, reason: str = "") -> GarbageCandidate:
    """Return a file or folder as a candidate: it stays for a reason, or while a file of it was written recently."""
    size, used = size_and_use(path)
    root = snapshot.workspace.root
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return GarbageCandidate(project, name, size, reason or snapshot.young(used, days), path)


def size_and_use(path: Path) -> tuple[int, float]:
    """Return the bytes of a file or folder, and when a file of it was written last; Unix time, seconds."""
    size, used = 0, 0.0
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        with contextlib.suppress(FileNotFoundError):
            status = file.lstat()
            used = max(used, status.st_mtime)
            size += 0 if file.is_dir() else status.st_size
    return size, used


def set_aside(path: Path) -> Path:
    """Rename a file or folder, so that nobody finds it; if this process is killed now, the next clean-up removes it."""
    return path.rename(path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"))


def discard(path: Path) -> None:
    """Remove a file or folder that was set aside."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def children(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield what matches below a folder, without hidden and half-written files."""
    yield from (path for path in folder.glob(pattern) if not path.name.startswith("."))
