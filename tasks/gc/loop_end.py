"""What a loop removes of its own project when it ends, once a day: so a workspace without a platform stays small."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tasks.gc.collect import OF_LOOPS, Limits, find, remove
from tasks.gc.retention import DAY_S
from tasks.gc.snapshot import ProjectRows, take
from tasks.host.leases import Lease
from tasks.host.workspace import Workspace

MARK = "collected"
"""The file of a project whose time says when its garbage was collected last."""


def mark_used(folders: Iterable[Path]) -> None:
    """Let step folders count as used now."""
    now = time.time()
    for folder in folders:
        with contextlib.suppress(OSError):
            os.utime(folder, (now, now))


def collect(workspace: Workspace, state: Path, loops: Collection[str], lease: Lease) -> int:
    """Remove what nothing needs of a project, if nobody did within a day; return the freed bytes.

    Args:
        workspace: The workspace.
        state: The project's folder under `.loopline/projects/`.
        loops: The loop, and those whose steps it used: their pages stay.
        lease: The lease by which this process runs the loop.

    Raises:
        StoreError: The database cannot be used, or another process runs the loop.
    """
    mark = state / MARK
    if mark.exists() and mark.stat().st_mtime > time.time() - DAY_S:
        return 0
    mark.touch()
    roots = {f"pages:{loop_id}": "the last loop uses it" for loop_id in loops}
    snapshot = take(workspace, [state.name], roots, pins={})
    collection = find(snapshot, OF_LOOPS)

    @contextlib.contextmanager
    def alone(_: ProjectRows) -> Iterator[Lease]:
        yield lease

    remove(snapshot, collection, alone, Limits(), OF_LOOPS)
    return sum(collection.removed.values())
