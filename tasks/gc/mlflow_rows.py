"""What MLflow holds of old loops: versions that nobody needs, and runs.

Rows go first, as tombstones: a version is marked as removed, with the tag WITHDRAWN; the delivery of a loop gets
another project's name. They name what is still to be removed from MLflow, and go last.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import select

from models.errors import StoreError
from models.serving.registry import WITHDRAWN as TAG
from tasks.gc.candidates import GarbageCandidate
from tasks.gc.retention import history_days
from tasks.gc.snapshot import WITHDRAWN, Snapshot
from tasks.host import database, stores
from tasks.host.tables import deliveries, outbox
from tasks.host.workspace import Workspace
from tasks.mlflow import embedded_store, garbage, registry_reader
from tasks.state import registered_models, versions
from tasks.state.versions import StoredVersion, address_of

if TYPE_CHECKING:
    from sqlalchemy import Connection


def pins_of(workspace: Workspace, projects: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the aliases in MLflow by project and version, and why those of other projects cannot be read."""
    pins, unread = {}, {}
    for project in projects:
        try:
            if versions.versions_of(workspace.state, project):
                _check(workspace, project)
                pins[project] = garbage.aliases_of(project)
        except StoreError as error:
            unread[project] = str(error)
    return pins, unread


def _check(workspace: Workspace, project: str) -> None:
    """Check that the registered model is ours, in a store that was not lost: MLflow would make a lost one anew.

    Raises:
        StoreError: It is not, or the store is away.
    """
    if owner := registered_models.foreign_owner(workspace.state, project):
        raise StoreError(
            f"{project}: its model belongs to workspace {owner}, which cleans it up: use `loopline gc` there"
        )
    embedded_store.initialise(workspace)
    registry_reader.check_answers()


def old_versions(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the registered versions, and those in MLflow that no row names."""
    root = snapshot.workspace.state
    for project in snapshot.projects.values():
        for version in project.versions:
            reason = snapshot.why(f"{project.name}/version:{version.number}")
            yield GarbageCandidate(project.name, version.number, _size(address_of(root, version.place)), reason)
        recorded = {version.number for version in project.versions}
        if not project.versions or project.name in snapshot.unread:
            continue
        with contextlib.suppress(StoreError):  # the next time
            _check(snapshot.workspace, project.name)
            for stray in garbage.unrecorded_versions(project.name):
                if stray.number not in recorded:
                    reason = snapshot.young(stray.created, history_days())
                    yield GarbageCandidate(project.name, stray.number, 0, reason)


def withdraw_versions(connection: Connection, project: str, chosen: Sequence[GarbageCandidate]) -> None:
    """Mark versions as removed: from now on nobody promotes, finds or serves them."""
    stored = {version.number: version for version in versions.read(connection, project)}
    for candidate in chosen:
        version = stored.get(candidate.name, StoredVersion(candidate.name, "", ""))
        tombstone = replace(version, tags={**version.tags, TAG: ""}, at=0.0, is_removed=True)
        versions.save(connection, project, tombstone)


def remove_versions(snapshot: Snapshot, _: Sequence[GarbageCandidate]) -> None:
    """Remove withdrawn versions from MLflow, unless somebody has given one an alias since."""
    root = snapshot.workspace.state
    for project in snapshot.projects:
        with database.reading(root) as connection:
            withdrawn = [version for version in versions.withdrawn(connection, project) if not version.tags[TAG]]
        if not withdrawn:
            continue
        _check(snapshot.workspace, project)
        pins = garbage.aliases_of(project)
        for version in withdrawn:
            if version.number in pins:
                tags = {name: value for name, value in version.tags.items() if name != TAG}
                stored = replace(version, tags=tags, at=snapshot.now, is_removed=False)
            else:
                model_id = garbage.drop_version(project, version.number)
                tags = {TAG: model_id} if model_id else {}
                stored = StoredVersion(version.number, "", "", tags, snapshot.now, is_removed=True)
            with database.writing(root) as connection:
                versions.save(connection, project, stored)


def old_runs(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the runs of loops, those of trials included."""
    place = stores.artifact_root(snapshot.workspace)
    with database.reading(snapshot.workspace.state) as connection:
        rows = connection.execute(select(deliveries).where(deliveries.c.project.in_(list(snapshot.projects)))).all()
    for row in rows:
        reason = snapshot.why(f"loop:{row.loop_id}", *(f"mlflow-run:{run}" for run in row.runs.values()))
        size = sum(_size((place / row.project / run).as_uri()) for run in row.runs.values())
        yield GarbageCandidate(row.project, row.loop_id, size, reason or snapshot.young(row.at, history_days()))


def withdraw_runs(connection: Connection, project: str, chosen: Sequence[GarbageCandidate]) -> None:
    """Withdraw the deliveries of loops, and the rest of their lines."""
    names = [candidate.name for candidate in chosen]
    rows = deliveries.c.project == project, deliveries.c.loop_id.in_(names)
    connection.execute(deliveries.update().where(*rows).values(project=f"{WITHDRAWN}{project}", at=0.0))
    connection.execute(outbox.delete().where(outbox.c.project == project, outbox.c.loop_id.in_(names)))


def remove_runs(snapshot: Snapshot, _: Sequence[GarbageCandidate]) -> None:
    """Delete the runs of withdrawn deliveries; an hour or a day later, remove them from MLflow's tables."""
    root, names = snapshot.workspace.state, [f"{WITHDRAWN}{project}" for project in snapshot.projects]
    with database.reading(root) as connection:
        rows = connection.execute(select(deliveries).where(deliveries.c.project.in_(names))).all()
    if rows:
        embedded_store.initialise(snapshot.workspace)
    for row in rows:
        if not row.at:
            garbage.drop_runs(row.runs.values())
            with database.writing(root) as connection:
                mine = deliveries.c.loop_id == row.loop_id
                connection.execute(deliveries.update().where(mine).values(at=snapshot.now))
    before = snapshot.now - garbage.PURGE_AFTER_S
    _purge(snapshot, {row.loop_id: row.runs for row in rows if 0 < row.at < before}, before)


def _purge(snapshot: Snapshot, loops: Mapping[str, Mapping[str, str]], before: float) -> None:
    root = snapshot.workspace.state
    with database.reading(root) as connection:
        tombstones = [
            (project, version)
            for project in snapshot.projects
            for version in versions.withdrawn(connection, project)
            if version.tags[TAG] and version.at < before
        ]
    runs = {run for of_loop in loops.values() for run in of_loop.values()}
    gone = garbage.purge(runs, {version.tags[TAG] for _, version in tombstones}) if runs else set()
    purged = [loop_id for loop_id, of_loop in loops.items() if gone >= {*of_loop.values()}]
    with database.writing(root) as connection:
        connection.execute(deliveries.delete().where(deliveries.c.loop_id.in_(purged)))
        for project, version in tombstones:
            if version.tags[TAG] in gone:
                versions.save(connection, project, replace(version, tags={}))


def _size(address: str) -> int:
    """Return the bytes of files on this machine; of those elsewhere, or at no address, 0."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("", "file") or not parts.path:
        return 0
    return sum(path.stat().st_size for path in Path(urllib.parse.unquote(parts.path)).rglob("*") if path.is_file())
