"""The loops of a project, and its history as the policy sees it: finished loops, decisions, the running loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, select

from models.errors import StoreError
from models.pipeline.keys import key_of
from models.project_spec.blocks import Spec
from models.triggers.signal import PastLoop, ProjectHistory
from tasks.host import database, processes
from tasks.host.leases import is_leased
from tasks.host.locks import tried
from tasks.host.tables import decisions, loops, outbox
from tasks.host.workspace import Project, Workspace
from tasks.state.outbox import undelivered
from tasks.state.predictions import new_labels

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping

    from tasks.host.leases import Lease

LOOP_LOCK = "loop.lock"
"""The lock that a project's loop holds while it runs."""
OVER = ("finished", "rejected")
"""States of a loop that is never continued: the next loop, perhaps on other data, has a new id."""


@dataclass(frozen=True)
class LoopRecord:
    """The state of a loop.

    `state` is running, finished, failed, rejected, cancelled or killed. `step` is the step that runs, or at which the
    loop ended; empty where none has begun, or all did. `process` is the identity of the process that ran it
    (`tasks/host/processes.py`).
    """

    loop_id: str
    state: str
    intent: str = ""
    folder: str = ""
    process: Mapping[str, Any] = field(default_factory=dict)
    began: float = 0.0
    trigger: str = "person"
    flow_run: str = ""
    step: str = ""


def save_loop(
    state: Path, loop: LoopRecord, lease: Lease | None = None, also: Callable[[Connection], None] | None = None
) -> None:
    """Save the state of a loop, which becomes the project's last loop.

    Args:
        state: The project's folder under `.loopline/projects/`.
        loop: The loop's new state.
        lease: The lease by which this process runs the loop.
        also: Writes in the same transaction what belongs to this state.

    Raises:
        LeaseLostError: Another process has taken over the loop.
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1]) as connection:
        if lease:
            lease.check(connection)
        _upsert(connection, state.name, "saved", asdict(loop))
        if also:
            also(connection)


def save_step(state: Path, loop_id: str, step: str, lease: Lease) -> None:
    """Save that a loop begins a step.

    Raises:
        LeaseLostError: Another process has taken over the loop.
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1], durable=False) as connection:
        lease.check(connection)
        connection.execute(loops.update().where(loops.c.loop_id == loop_id).values(step=step))


def record_loop(state: Path, loop: PastLoop, lease: Lease | None = None) -> None:
    """Record the end of a loop; of a loop that was killed and continued, the last end counts.

    Args:
        state: The project's folder under `.loopline/projects/`.
        loop: The loop's end.
        lease: The lease by which this process runs the loop, or ends it in place of a dead one.

    Raises:
        LeaseLostError: Another process has taken over the loop.
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1]) as connection:
        if lease:
            lease.check(connection)
        close_loop(connection, state, loop)


def close_loop(connection: Connection, state: Path, loop: PastLoop) -> None:
    """Record the end of a loop in a transaction."""
    _upsert(connection, state.name, "closed", loop.model_dump())


def read_loops(state: Path) -> list[PastLoop]:
    """Return the project's loops in the order in which they ended."""
    columns = [loops.c[name] for name in PastLoop.model_fields]
    ended = select(*columns).where(loops.c.project == state.name, loops.c.closed.is_not(None))
    with database.reading(state.parents[1]) as connection:
        return [PastLoop(**row) for row in connection.execute(ended.order_by(loops.c.closed)).mappings()]


def newest_loops(root: Path, projects: Sequence[str], limit: int) -> dict[str, list[PastLoop]]:
    """Return the loops of projects that ended last, newest first, at most `limit` of each.

    Args:
        root: The workspace's state folder, `.loopline`.
        projects: The projects' names; one without such loops is left out.
        limit: The number of loops of a project.
    """
    ended: dict[str, list[PastLoop]] = {}
    for row in _newest(root, "closed", projects, limit, PastLoop.model_fields):
        ended.setdefault(row["project"], []).append(PastLoop(**{name: row[name] for name in PastLoop.model_fields}))
    return ended


def last_loops(root: Path, projects: Sequence[str]) -> dict[str, LoopRecord]:
    """Return the state of the last loop of each project that has one; `root` is the workspace's state folder."""
    fields = LoopRecord.__dataclass_fields__
    rows = _newest(root, "saved", projects, 1, fields)
    return {row["project"]: LoopRecord(**{name: row[name] for name in fields}) for row in rows}


def last_loop(state: Path) -> LoopRecord | None:
    """Return the state of the project's last loop, or None."""
    return last_loops(state.parents[1], [state.name]).get(state.name)


class StoredLoop(NamedTuple):
    """A loop with its project; `past` is None unless it has ended once."""

    project: str
    record: LoopRecord
    past: PastLoop | None


def find_loop(root: Path, loop_id: str) -> StoredLoop | None:
    """Return the loop of an id, or None; `root` is the workspace's state folder, `.loopline`."""
    with database.reading(root) as connection:
        row = connection.execute(select(loops).where(loops.c.loop_id == loop_id)).mappings().first()
    if row is None:
        return None
    record = {name: row[name] for name in LoopRecord.__dataclass_fields__ if row[name] is not None}
    past = {name: row[name] for name in PastLoop.model_fields} if row["closed"] is not None else None
    return StoredLoop(row["project"], LoopRecord(**{"state": "", **record}), PastLoop(**past) if past else None)


def change_mark(root: Path, project: str, loop_id: str) -> tuple[int, str]:
    """Return what changes whenever a loop does: the number of its last line in the outbox, and its state.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The loop's project.
        loop_id: The loop.

    Cost: one query, which reads two rows.
    """
    mine = (outbox.c.project == project, outbox.c.loop_id == loop_id)
    last = select(func.max(outbox.c.number)).where(*mine).scalar_subquery()
    with database.reading(root) as connection:
        row = connection.execute(select(last.label("number"), loops.c.state).where(loops.c.loop_id == loop_id)).first()
    return (row.number or 0, row.state or "") if row else (0, "")


def _newest(root: Path, order: str, projects: Sequence[str], limit: int, names: Iterable[str]) -> Sequence[RowMapping]:
    rows = database.newest(loops.c[order], limit, [loops.c[name] for name in ("project", *names)], project=projects)
    with database.reading(root) as connection:
        return connection.execute(rows).mappings().all()


def past(project: Project, spec: Spec, now: float | None = None) -> ProjectHistory:
    """Return the history that the policy needs.

    Args:
        project: The project.
        spec: The project's spec; labels are counted only if `retrain.min_new_labels` is set.
        now: Unix time; default: the database's.
    """
    state = project.state(spec.name)
    loops = read_loops(state)
    return ProjectHistory(
        loops=loops,
        new_labels=_new_labels(state, loops) if spec.retrain.min_new_labels else 0,
        running=running(state),
        **_decided(
            state, (database.current_time(project.workspace.state) if now is None else now) - spec.retrain.ask_timeout_s
        ),
    )


def running(state: Path) -> str | None:
    """Return the id of the running loop, or None; a loop whose process is gone does not run."""
    loop = last_loop(state)
    return loop.loop_id if loop and is_running(state, loop) else None


def is_running(state: Path, loop: LoopRecord) -> bool:
    """Return whether this loop runs: its process is alive, or one on another host holds the project's lock or lease."""
    if loop.state != "running":
        return False
    return processes.is_alive(loop.process, state / LOOP_LOCK) or is_leased(state.parents[1], lease_of(state))


def lease_of(state: Path) -> str:
    """Return the name of the lease by which a process runs a project's loop."""
    return f"loop:{state.name}"


@contextlib.contextmanager
def without_loops(workspace: Workspace) -> Iterator[list[str]]:
    """Keep the loops of a workspace from running during the block; yield the names of its projects.

    Raises:
        StoreError: A loop runs.
    """
    names = sorted({path.name for path in (workspace.state / "projects").glob("*")} | set(workspace.folders()))
    with contextlib.ExitStack() as locks:
        for name in names:
            state = workspace.state / "projects" / name
            state.mkdir(parents=True, exist_ok=True)
            if not locks.enter_context(tried(state / LOOP_LOCK)) or is_leased(workspace.state, lease_of(state)):
                raise StoreError(f"{name}: a loop runs: wait for it, or end it; nothing was changed")
        yield names


def _upsert(connection: Connection, project: str, order: str, values: dict[str, Any]) -> None:
    """Write a loop's row; its number in the column `order` becomes the highest of the project."""
    highest = connection.scalar(select(func.max(loops.c[order])).where(loops.c.project == project)) or 0
    database.upsert(connection, loops, {**values, "project": project, order: highest + 1})


def _new_labels(state: Path, loops: list[PastLoop]) -> int:
    from tasks.state.ingest_segments import receive

    with contextlib.suppress(StoreError):  # lock busy or disk full: waiting labels count the next time
        receive(state)
    trained = [loop.began for loop in loops if loop.outcome not in ("failed", "rejected", "cancelled")]
    return new_labels(state, trained[-1] if trained else 0.0)


def _decided(state: Path, since: float) -> dict[str, Any]:
    """Return signals with a final decision, and the signal that waits for a person, unless the question timed out."""
    mine = decisions.c.project == state.name
    last = select(func.max(decisions.c.number)).where(mine).group_by(decisions.c.signal)
    columns = select(decisions.c.signal, decisions.c.action, decisions.c.at, decisions.c.until)
    with database.reading(state.parents[1]) as connection:
        rows = connection.execute(columns.where(decisions.c.number.in_(last)).order_by(decisions.c.number)).all()
    open_approval = [row.signal for row in rows if row.action == "ask" and row.at > since]
    settled_signals = frozenset(row.signal for row in rows if row.action != "wait" or row.until is None)
    return {"signals": settled_signals, "open_approval": open_approval[-1] if open_approval else None}


def intent_of(spec: Spec) -> str:
    """Return the hash of a loop's spec: an interrupted loop is continued only by a loop with the same hash."""
    return key_of(spec.model_dump(mode="json"))


def is_owed(workspace: Workspace, spec: Spec) -> bool:
    """Return whether the project's last loop still needs the reaper: its state is open, or its log is undelivered.

    Only the loop's state and the outbox are read. A loop that was killed after its last step has no step left to run,
    but its runs must not stay open or failed forever.
    """
    state = workspace.state / "projects" / spec.name
    loop_state = last_loop(state)
    if loop_state is None or is_running(state, loop_state):
        return False
    if loop_state.state == "running" or (loop_state.state not in OVER and loop_state.intent == intent_of(spec)):
        return True
    return bool(undelivered(state))
