"""Garbage collection of a workspace: `loopline gc`, which the platform runs once a day.

`python -m tasks.operations.collect_garbage ROOT` removes what nothing needs, within the limits of a day.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from models.errors import LooplineError, UsageError
from models.files import SPEC_FILE, write_text
from models.launch import launched
from models.parent_death import ends_with_parent
from models.project_spec.blocks import NAME_PATTERN
from tasks.gc import collect
from tasks.gc.collect import Limits, find, remove
from tasks.gc.mlflow_rows import pins_of
from tasks.gc.retention import DAY_S
from tasks.gc.snapshot import ProjectRows, Snapshot, take
from tasks.host import leases, stores
from tasks.host.leases import Lease
from tasks.host.locks import tried
from tasks.host.workspace import Project, Workspace
from tasks.loop.history import LOOP_LOCK, lease_of
from tasks.mlflow import registry_reader

DAILY_S, DAILY_BYTES = 600.0, 50e9
"""What the platform may take for it a day: time, and bytes that it removes."""
MARK = "collected"
"""The file of the platform whose time says when this machine collected last."""
NICE = 15
LEASE = "gc"
"""The lease by which one process collects the garbage of a workspace at a time."""


@registry_reader.reading()  # a tracking store that is away is asked for one project alone
def listed(workspace: Workspace, only: str | None = None) -> tuple[Snapshot, collect.Collection]:
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
    roots, wrong = _named_by_specs(workspace, chosen)
    pins, away = pins_of(workspace, chosen)
    unread = {**away, **wrong}
    snapshot = take(workspace, chosen, roots, {name: pins[name] for name in pins if name not in unread})
    collection = find(snapshot)
    collection.skipped |= {f"{name}, versions and what they need": reason for name, reason in unread.items()}
    return snapshot, collection


def _named_by_specs(workspace: Workspace, names: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the versions with whose weights trainings begin, as roots, and why specs of projects cannot be read."""
    roots, unread = {}, {}
    for name, folder in workspace.folders().items():
        if name in names and (folder / SPEC_FILE).is_file():
            try:
                start = Project(workspace, folder).spec().train.start
            except UsageError as error:
                unread[name] = str(error)
                continue
            if start and start.weights.isdecimal():
                roots[f"{name}/version:{start.weights}"] = f"{name}: train.start.weights of the spec names it"
    return roots, unread


def delete(workspace: Workspace, only: str | None = None, limits: Limits | None = None) -> collect.Collection:
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


@dataclass
class DailyCollection:
    """Starts the process that collects garbage, once a day; for the first time a day after the platform began.

    Args:
        workspace: The workspace.
    """

    workspace: Workspace
    _process: subprocess.Popen[bytes] | None = None

    def once(self) -> subprocess.Popen[bytes] | None:
        """Start the process if it is due; return the one that it started last, if any."""
        mark = self.workspace.platform / MARK
        is_running = self._process is not None and self._process.poll() is None
        if not mark.exists():
            write_text(mark, "")
        elif not is_running and time.time() - mark.stat().st_mtime >= DAY_S:
            os.utime(mark)
            command = ends_with_parent(launched(__name__, str(self.workspace.root)))
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        return self._process


def main() -> None:
    """Remove what nothing needs, within the limits of a day."""
    os.nice(NICE)  # loops and servers have priority
    workspace = Workspace(Path(sys.argv[1]))
    stores.configure(workspace)
    collection = delete(workspace, limits=Limits(DAILY_S, DAILY_BYTES))
    freed = sum(collection.removed.values())
    waiting = "".join(f"{what}: nothing was removed: {reason}\n" for what, reason in collection.skipped.items())
    sys.stdout.write(f"{waiting}{freed / 1e6:,.1f} MB that nothing needed are gone\n")


if __name__ == "__main__":
    try:
        main()
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
