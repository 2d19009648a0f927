"""Files that killed processes left half-written."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from tasks.gc.candidates import GarbageCandidate, of_path
from tasks.gc.snapshot import Snapshot
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.state.delta.places import COMMITS
from tasks.state.segments import KINDS, STALE_S, segments_folder

WRITER = re.compile(r"\.(\d+)-\w{8,}\.tmp$")  # how `models.files` and Delta logs name unfinished files


def of_project(state: Path, folder: str) -> list[Path]:
    """Return half-written files of a project whose lock this process holds.

    Files of loops count at once. Other files, such as reports and labels, may be in use: they count when their writer
    is gone. A log may be written from another host, whose pids mean nothing here: there only age counts, as in
    `DeltaLog`.

    Args:
        state: The project's folder under `.loopline/projects/`.
        folder: The project's own folder, as its last loop recorded it; empty without one.
    """
    of_loops = [state / "work", *([Path(folder) / "data"] if folder else [])]
    logs = [state / kind / place for kind in KINDS for place in ("", COMMITS)]
    logs += [segments_folder(state, kind) for kind in KINDS]
    files = {path for place in of_loops for path in place.rglob(".*.tmp")}
    files |= {path for path in state.rglob(".*.tmp") if _is_left(path, path.parent not in logs)}
    return sorted(files)


def of_workspace(workspace: Workspace) -> list[Path]:
    """Return half-written cache files and databases of dead writers: projects share them, and loops may be running.

    With them contexts of Great Expectations to which no link leads: `loopline gx` was killed while it wrote them.
    """
    state, context = workspace.state, workspace.expectations
    names = (f".{database.FILE}.*.tmp*", f".{context.name}.*.tmp", f"{context.name}-*")
    files = {*workspace.cache.rglob(".*.tmp"), *(path for name in names for path in state.glob(name))}
    files.discard(context.resolve())
    return [path for path in sorted(files) if _is_left(path, by_pid=True)]


def half_written(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the half-written files of projects and of the workspace; none is kept."""
    folders = snapshot.workspace.folders()
    for project in snapshot.projects.values():
        for path in of_project(project.state, str(folders.get(project.name, ""))):
            yield of_path(snapshot, project.name, path, 0.0)
    for path in of_workspace(snapshot.workspace):
        yield of_path(snapshot, "", path, 0.0)


def prefect_history(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the database of the workspace's own Prefect server, which forgets by itself."""
    path = snapshot.workspace.state / "prefect" / "prefect.db"
    if path.exists():
        yield of_path(snapshot, "", path, 0.0, "Prefect forgets runs, artifacts and events after 30 days")


def _is_left(path: Path, by_pid: bool) -> bool:
    """Return whether the writer is gone: by the pid in the name, or because the file is older than `STALE_S`."""
    import psutil

    writer = WRITER.search(path.name)
    if by_pid and writer and not psutil.pid_exists(int(writer[1])):
        return True
    with contextlib.suppress(FileNotFoundError):
        return time.time() - path.lstat().st_mtime > STALE_S
    return False
