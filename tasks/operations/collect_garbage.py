"""Garbage collection of a workspace: `loopline gc`, which the platform runs once a day.

`python -m tasks.operations.collect_garbage ROOT` removes what nothing needs, within the limits of a day.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from models.errors import LooplineError
from models.project_spec.blocks import NAME_PATTERN
from tasks.gc.collect import Collection, Limits, find, remove
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases, stores
from tasks.host.leases import Lease
from tasks.host.locks import tried
from tasks.host.workspace import Workspace
from tasks.loop.history import LOOP_LOCK, lease_of

DAILY_S, DAILY_BYTES = 600.0, 50e9
"""What the platform may take for it a day: time, and bytes that it removes."""
LEASE = "gc"
"""The lease by which one process collects the garbage of a workspace at a time."""


def listed(workspace: Workspace, only: str | None = None) -> tuple[Snapshot, Collection]:
    """Return what there is of each kind, and why it is kept; nothing is changed.

    Args:
        workspace: The workspace.
        only: A project's name; default: all projects.

    Raises:
        StoreError: The database cannot be used.
    """
    folders = {path.name for path in (workspace.state / "projects").glob("*/")}
    names = {name for name in folders if re.fullmatch(NAME_PATTERN, name)} | set(workspace.folders())
    chosen = sorted(names & {only} if only else names)
    snapshot = take(workspace, chosen, roots={}, pins={})
    return snapshot, find(snapshot)


def delete(workspace: Workspace, only: str | None = None, limits: Limits | None = None) -> Collection:
    """Remove what nothing needs; return what there was of each kind, and how many bytes went.

    Args:
        workspace: The workspace.
        only: A project's name; default: all projects.
        limits: How long it may last, and how much it may remove.

    Raises:
        StoreError: The database cannot be used, or another process collects already.
    """
    with leases.leased(workspace.state, LEASE):
        snapshot, collection = listed(workspace, only)
        remove(snapshot, collection, _alone, limits or Limits())
    return collection


@contextlib.contextmanager
def _alone(project: ProjectRows) -> Iterator[Lease | None]:
    """Hold a project's lock and lease, so that no loop of it begins meanwhile; yield None if one runs."""
    project.state.mkdir(parents=True, exist_ok=True)  # the loops of another machine have no folder here
    with tried(project.state / LOOP_LOCK) as is_free:
        if not is_free:
            yield None
            return
        with leases.tried(project.state.parents[1], lease_of(project.state)) as lease:
            yield lease if isinstance(lease, Lease) else None


def main() -> None:
    """Remove what nothing needs, within the limits of a day."""
    workspace = Workspace(Path(sys.argv[1]))
    stores.configure(workspace)
    collection = delete(workspace, limits=Limits(DAILY_S, DAILY_BYTES))
    freed = sum(collection.removed.values())
    sys.stdout.write(f"{freed / 1e6:,.1f} MB that nothing needed are gone\n")


if __name__ == "__main__":
    try:
        main()
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
