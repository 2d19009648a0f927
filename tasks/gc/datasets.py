"""Data in DVC's cache and studies of Optuna that only removed records named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from tasks.gc.candidates import GarbageCandidate
from tasks.gc.retention import DVC_REMOTE, owns_remote
from tasks.gc.snapshot import WITHDRAWN, ProjectRows, Snapshot
from tasks.host import database
from tasks.host.tables import step_records, versions
from tasks.host.workspace import Project, Workspace
from tasks.tools import dvc_garbage, dvc_view, study_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

DATA, DATA_TAGS = ("raw", "prepared"), ("loopline.raw", "loopline.dataset")


def old_data(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the data of versions in DVC's cache; withdrawn data that a `dvc.lock` names stays too."""
    for project in snapshot.projects.values():
        yield from _data_of(snapshot, project)


def remote_data(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the same data at DVC's default remote, which goes with it only from a remote of our own."""
    shared = "" if owns_remote() else f"others may use DVC's remote: {DVC_REMOTE}=own says that nobody does"
    for project in snapshot.projects.values():
        if dvc_view.default_remote(dvc_view.root_of(_project(snapshot.workspace, project.name))):
            for candidate in _data_of(snapshot, project):
                yield candidate._replace(reason=candidate.reason or shared)


def _data_of(snapshot: Snapshot, project: ProjectRows) -> Iterator[GarbageCandidate]:
    repository = _project(snapshot.workspace, project.name)
    named = {record.result.get(name) for record in project.records if record.step == "version" for name in DATA}
    withdrawn, _, tagged = _named(snapshot.workspace, project.name, "version", DATA, DATA_TAGS)
    named |= withdrawn
    reasons = dict.fromkeys(tagged & withdrawn, "a version names it, and goes first")
    reasons |= dvc_view.named_hashes(repository) if any(named) else {}
    for data_hash in sorted(filter(None, named)):
        size = sum(dvc_garbage.objects_of(repository, data_hash).values())
        reason = snapshot.why(f"data:{data_hash}") or reasons.get(data_hash, "")
        yield GarbageCandidate(project.name, data_hash, size, reason)


def remove_data(snapshot: Snapshot, _: Sequence[GarbageCandidate]) -> None:
    """Remove the data that withdrawn records name and no other record, version or `dvc.lock` of the workspace."""
    for name in snapshot.projects:
        unneeded, recorded, tagged = _named(snapshot.workspace, name, "version", DATA, DATA_TAGS)
        if unneeded:
            project = _project(snapshot.workspace, name)
            gone = dvc_garbage.remove(project, unneeded, recorded | tagged, from_remote=owns_remote())
            _forget(snapshot.workspace, name, "version", DATA, gone | recorded)


def old_studies(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the studies of searches; a journal file keeps their bytes, a database frees them."""
    for project in snapshot.projects.values():
        named = {record.result.get("study") for record in project.records if record.step == "search"}
        for study in sorted(filter(None, named)):
            yield GarbageCandidate(project.name, study, 0, snapshot.why(f"study:{study}"))


def remove_studies(snapshot: Snapshot, _: Sequence[GarbageCandidate]) -> None:
    """Remove the studies that withdrawn records name and no other record or version of the workspace."""
    for project in snapshot.projects:
        unneeded, recorded, tagged = _named(snapshot.workspace, project, "search", ("study",), ("loopline.study",))
        if unneeded:
            study_tables.delete_studies(snapshot.workspace, unneeded - recorded - tagged)
            _forget(snapshot.workspace, project, "search", ("study",), unneeded - (tagged - recorded))


def _project(workspace: Workspace, name: str) -> Project:
    return Project(workspace, workspace.folders(name).get(name, workspace.root / "projects" / name))


def _named(
    workspace: Workspace, project: str, step: str, fields: Sequence[str], tags: Sequence[str]
) -> tuple[set[str], set[str], set[str]]:
    """Return what the withdrawn records of a project name, what other records of the workspace do, and versions.

    What a version alone still names keeps its withdrawn record: the version may go later, and names nothing then.
    """
    with database.reading(workspace.state) as connection:
        withdrawn = _results(connection, f"{WITHDRAWN}{step}", project=project)
        unneeded = {result[name] for result in withdrawn for name in fields if result.get(name)}
        if not unneeded:
            return set(), set(), set()
        recorded = {result[name] for result in _results(connection, step) for name in fields if result.get(name)}
        rows = connection.scalars(select(versions.c.tags).where(~versions.c.is_removed))
        tagged = {stored[tag] for stored in rows for tag in tags if stored.get(tag)}
    return unneeded, recorded, tagged


def _results(connection: Connection, step: str, **columns: str) -> list[dict[str, Any]]:
    rows = select(step_records.c.content).filter_by(step=step, **columns)
    return [content.get("result") or {} for content in connection.scalars(rows)]


def _forget(workspace: Workspace, project: str, step: str, fields: Sequence[str], gone: set[str]) -> None:
    """Remove the withdrawn records of which all is gone, or named by other rows."""
    mine = step_records.c.project == project, step_records.c.step == f"{WITHDRAWN}{step}"
    with database.writing(workspace.state) as connection:
        rows = connection.execute(select(step_records.c.number, step_records.c.content).where(*mine)).all()
        results = {row.number: row.content.get("result") or {} for row in rows}
        done = [number for number, result in results.items() if {result.get(name) for name in fields} <= {*gone, None}]
        connection.execute(step_records.delete().where(step_records.c.number.in_(done)))
