"""The processes that run Prefect flows of a project: the reaper closes the flow runs of those that died.

Prefect itself closes only the runs of its workers; these are started from a command line or from Python.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import select

from tasks.host import database, processes
from tasks.host.tables import runners

STALE_S = 3600.0
"""Age after which a process of another host counts as dead: it may be about to begin a loop."""


def add_runner(state: Path, flow_run: str | None = None) -> int:
    """Note that this process runs a flow; return the note's number.

    Args:
        state: The project's folder under `.loopline/projects/`.
        flow_run: Prefect's id of the run; None before it is known.

    Raises:
        StoreError: The database cannot be written.
    """
    row = {"project": state.name, "flow_run": flow_run, "process": processes.identity(), "since": time.time()}
    state.mkdir(parents=True, exist_ok=True)  # the reaper looks at the projects that have a folder
    with database.writing(state.parents[1]) as connection:
        number: int = connection.execute(runners.insert().values(row).returning(runners.c.number)).scalar_one()
    return number


def remove_runners(state: Path, numbers: Collection[int]) -> None:
    """Remove notes by their numbers."""
    with database.writing(state.parents[1]) as connection:
        connection.execute(runners.delete().where(runners.c.number.in_(numbers)))


@contextlib.contextmanager
def running_flow(state: Path) -> Iterator[str]:
    """Note for the reaper that this process begins a flow run; yield the tag for the run.

    If the process is killed before its loop is open, only this note leads to its Prefect run.
    """
    number = add_runner(state)
    try:
        yield tag_of(processes.identity())
    finally:
        remove_runners(state, [number])


def tag_of(process: Mapping[str, Any]) -> str:
    """Return the tag of the flow runs that a process begins."""
    return ":".join(str(process.get(name)) for name in ("host", "pids", "pid", "started"))


def dead_runners(state: Path) -> dict[int, UUID | str]:
    """Return for each note of a dead process the id of its flow run, or the tag of all runs that it began."""
    with database.reading(state.parents[1]) as connection:
        notes = connection.execute(select(runners).where(runners.c.project == state.name)).all()
    return {
        note.number: UUID(note.flow_run) if note.flow_run else tag_of(note.process)
        for note in notes
        if _is_dead(note.process, note.since)
    }


def _is_dead(process: Mapping[str, Any], since: float) -> bool:
    if processes.is_here(process):
        return not processes.is_alive(process)
    return time.time() - since > STALE_S
