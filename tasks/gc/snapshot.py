"""What the state database holds of projects at one moment, and which of it is needed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import func, select

from models.pipeline.keys import key_of
from models.pipeline.reachability import YOUNG, Node, needed
from models.serving.registry import BEST, JUDGED_BEST, ChampionMove
from tasks.gc.retention import DAY_S, champion_days, history_days, kept_loops
from tasks.host import database
from tasks.host.tables import loops, served_versions, step_records
from tasks.host.workspace import Workspace
from tasks.state import champion_moves, registered_models, step_store, versions
from tasks.state.versions import StoredVersion

if TYPE_CHECKING:
    from sqlalchemy import Connection

WITHDRAWN = "gc:"
"""Before the step of a record that no reader finds any more: it names bytes that are still to be removed."""
HEARD_S = DAY_S
"""A server that was heard of within this time is in use."""
UNKNOWN_PINS = "its aliases in MLflow, or the spec, were not read"


class StoredRecord(NamedTuple):
    """What is needed of the record of a step: its place in the table, its bytes, and what it names."""

    number: int
    step: str
    key: str
    size: int
    loop_id: str
    finished: float
    snapshot: str
    digest: str
    result_key: str
    inputs: Sequence[tuple[str, str]]
    result: Mapping[str, Any]


class Stamp(NamedTuple):
    """The newest rows of a project: while they stay, nothing became needed that was not."""

    move: int
    record: int
    saved: int
    challenger: str | None


@dataclass(frozen=True)
class ProjectRows:
    """The rows of one project.

    Args:
        name: Its name.
        state: Its folder under `.loopline/projects/`.
        stamp: Its newest rows.
        versions: Its versions that were not removed.
        records: The records of its steps; empty where they were not asked for.
    """

    name: str
    state: Path
    stamp: Stamp
    versions: Sequence[StoredVersion] = ()
    records: Sequence[StoredRecord] = ()


@dataclass(frozen=True)
class Snapshot:
    """Projects of a workspace at one moment.

    Args:
        workspace: The workspace.
        now: Unix time, seconds, by the database's clock.
        projects: By name.
        reasons: Why a version, loop, record or what they name is needed; see `models.pipeline.reachability`.
        unread: The projects whose pins are not known.
    """

    workspace: Workspace
    now: float
    projects: Mapping[str, ProjectRows]
    reasons: Mapping[str, str] = field(default_factory=dict)
    unread: Collection[str] = ()

    def why(self, *names: str) -> str:
        """Return why one of the names is needed; empty: none is."""
        return next((self.reasons[name] for name in names if name in self.reasons), "")

    def root_of(self, *names: str) -> str:
        """Return the root that needs one of the names; empty: none does, though they may be young."""
        return next((why for name in names if (why := self.why(name)) and why != YOUNG), "")

    def young(self, used: float, days: float) -> str:
        """Return why something that was used at this time stays, if it is too young to go; else an empty text."""
        left_days = days - (self.now - used) / DAY_S
        return f"used within {days:g} days" if left_days > 0 else ""


def take(
    workspace: Workspace,
    names: Iterable[str],
    roots: Mapping[str, str],
    pins: Mapping[str, Mapping[str, str]],
) -> Snapshot:
    """Return the state of projects at one moment.

    Args:
        workspace: The workspace.
        names: The projects.
        roots: What the caller needs, by name (`flights/loop:flights-1`), with the reason.
        pins: The aliases in MLflow by project, as version -> alias; of a project without, every version stays.

    Raises:
        StoreError: The database or the object store cannot be used.

    Cost: reads each record, about 10 us a record of 8 kB, and lists the steps at the object store.
    """
    before = history_days() * DAY_S
    names = [*names]
    uses = {name: step_store.last_uses(name) for name in names}
    with database.reading(workspace.state) as connection:
        now = database.now(connection)
        facts, nodes = {}, dict[str, Node]()
        for name in names:
            state, stamp = workspace.state / "projects" / name, stamp_of(connection, name)
            project = ProjectRows(name, state, stamp, versions.read(connection, name), _records(connection, name))
            facts[name] = project
            nodes |= {**_loops(connection, project, now), **_step_records(project, uses[name])}
            nodes |= _versions(connection, project, pins.get(name), now)
        nodes |= {name: nodes.get(name, Node(now))._replace(root=reason) for name, reason in roots.items()}
    return Snapshot(workspace, now, facts, needed(nodes, now - before), {*names} - {*pins})


def stamp_of(connection: Connection, project: str) -> Stamp:
    """Return the newest rows of a project."""
    from tasks.host.tables import champion_moves

    def newest(column: Any) -> int:
        return connection.scalar(select(func.max(column)).where(column.table.c.project == project)) or 0

    challenger = registered_models.read(connection, project).challenger
    return Stamp(newest(champion_moves.c.number), newest(step_records.c.number), newest(loops.c.saved), challenger)


def _loops(connection: Connection, project: ProjectRows, now: float) -> dict[str, Node]:
    used = func.coalesce(loops.c.ended, loops.c.began).label("used")
    rows = select(loops.c.loop_id, loops.c.saved, loops.c.state, used).where(loops.c.project == project.name)
    rows = rows.order_by(loops.c.saved.desc())
    by_loop: dict[str, list[str]] = {}
    for record in project.records:
        by_loop.setdefault(record.loop_id, []).append(f"{project.name}/record:{record.number}")
    listed = connection.execute(rows).all()
    last = [row.loop_id for row in listed if row.loop_id in by_loop][: kept_loops()]  # another one found all done
    nodes = {}
    for row in listed:
        root = "it is the last loop" if row.saved == project.stamp.saved else "it runs" * (row.state == "running")
        names = (*by_loop.get(row.loop_id, ()), f"pages:{row.loop_id}", f"run:{row.loop_id}", f"rows:{row.loop_id}")
        nodes[f"loop:{row.loop_id}"] = Node(
            now if row.loop_id in last else row.used, names, root and f"{row.loop_id}: {root}"
        )
    return nodes


def _step_records(project: ProjectRows, uses: Mapping[str, float]) -> dict[str, Node]:
    by_digest: dict[tuple[str, str], list[str]] = {}
    newest: dict[str, int] = {}
    for record in project.records:
        name = f"{project.name}/record:{record.number}"
        by_digest.setdefault((record.step, record.digest), []).append(name)
        by_digest.setdefault((record.step, record.result_key), []).append(name)
        newest[record.step] = max(record.number, newest.get(record.step, 0))
    nodes = {}
    for record in project.records:
        root = f"the last record of {record.step} of {project.name}" * (newest[record.step] == record.number)
        inputs = [name for used in record.inputs for name in by_digest.get(used, ())]
        names = (*inputs, f"pages:{record.loop_id}", *_named_by(project.name, record))
        nodes[f"{project.name}/record:{record.number}"] = Node(_used(project.state, record, uses), names, root)
    return nodes


def _used(state: Path, record: StoredRecord, uses: Mapping[str, float]) -> float:
    """Return when a record was used last: a loop that uses it renews its snapshot and marks the step's folder."""
    used = max(record.finished, uses.get(record.snapshot, 0.0))
    with contextlib.suppress(OSError):
        return max(used, (state / "work" / record.step / record.key[:16]).stat().st_mtime)
    return used


def _named_by(project: str, record: StoredRecord) -> list[str]:
    """Return what the result of a step names: data in DVC, a study, a version."""
    result = record.result
    named = {
        "version": [f"data:{result[name]}" for name in ("raw", "prepared") if result.get(name)],
        "search": [f"study:{result['study']}"] if result.get("study") else [],
        "register": [f"{project}/version:{result['version']}"] if result.get("version") else [],
    }
    return named.get(record.step, [])


def _versions(
    connection: Connection, project: ProjectRows, pins: Mapping[str, str] | None, now: float
) -> dict[str, Node]:
    reasons = _reasons(connection, project, champion_moves.read(connection, project.name), now)
    nodes = {}
    for version in project.versions:
        tags, number = version.tags, version.number
        made_by = [
            f"{project.name}/record:{record.number}"
            for record in project.records
            if record.step == "register" and record.result.get("key") == tags.get("loopline.key")
        ]
        data = [f"data:{tags[name]}" for name in ("loopline.raw", "loopline.dataset") if tags.get(name)]
        study = [f"study:{tags['loopline.study']}"] if tags.get("loopline.study") else []
        names = (*made_by, *data, *study, f"loop:{tags.get('loopline.loop_id')}", f"mlflow-run:{version.run}")
        alias = UNKNOWN_PINS if pins is None else f"MLflow has the alias {pins[number]}" if number in pins else ""
        reason = reasons.get(number) or alias
        nodes[f"{project.name}/version:{number}"] = Node(
            version.at, names, reason and f"{project.name} version {number}: {reason}"
        )
    return nodes


def _reasons(connection: Connection, project: ProjectRows, moves: Sequence[ChampionMove], now: float) -> dict[str, str]:
    """Return why versions are needed, by number; moves are newest first."""
    heard = served_versions.c.project == project.name, served_versions.c.at > now - HEARD_S
    reasons = dict.fromkeys(connection.scalars(select(served_versions.c.version).where(*heard)), "a server has it")
    if project.stamp.challenger:
        reasons[project.stamp.challenger] = "it is the challenger"
    former = [move for move in moves[1:] if move.at > now - champion_days() * DAY_S]
    reasons |= {number: "it was champion" for move in former for number in (move.before, move.after) if number}
    for move in moves[:1]:
        tags = next((version.tags for version in project.versions if version.number == move.after), {})
        best = (move.best, tags.get(BEST), tags.get(JUDGED_BEST))
        reasons |= {identity.partition(":")[0]: "the champion is compared with it" for identity in best if identity}
        reasons |= {move.before: "it was champion"} if move.before else {}
        reasons |= dict.fromkeys(move.plan.versions, "it is tried beside the champion")
        reasons |= {move.after: "it is the champion"} if move.after else {}
    return reasons


def _records(connection: Connection, project: str) -> list[StoredRecord]:
    columns = [step_records.c[name] for name in ("number", "step", "key")]
    rows = select(*columns, database.text(step_records.c.content)).where(
        step_records.c.project == project, step_records.c.step.not_like(f"{WITHDRAWN}%")
    )
    stored = connection.execution_options(yield_per=500).execute(rows)
    return [_record(row.number, row.step, row.key, row.content) for row in stored]


def _record(number: int, step: str, key: str, content: str) -> StoredRecord:
    document = json.loads(content)
    parts, result = document.get("parts", {}), document.get("result") or {}
    names = [name for name in parts if name.startswith(("input:", "result:"))]
    return StoredRecord(
        number,
        step,
        key,
        len(content),
        document.get("loop_id", ""),
        document.get("finished", 0.0),
        document.get("snapshot", ""),
        document.get("digest", ""),
        key_of(result),
        [(name.partition(":")[2], str(parts[name])) for name in names],
        {name: result[name] for name in ("raw", "prepared", "study", "version", "key") if name in result},
    )
