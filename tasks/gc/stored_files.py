"""Files of projects at the object store of LOOPLINE_ROOT: as old as on the local disk, and needed by the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from models.files import Hashes
from tasks.gc.candidates import GarbageCandidate
from tasks.gc.project_files import PLACES
from tasks.gc.retention import DAY_S, keep_days
from tasks.gc.snapshot import ProjectRows, Snapshot
from tasks.host.object_store import ObjectStore, StoredObject, object_store
from tasks.state.shared_files import PUBLISHED
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore

STAYING_FOLDERS = {
    "steps": "used within its retention",
    "checkpoints": "used within its retention",
    PUBLISHED: "as its file on the local disk",
    "served": "its rows stay for ever, or for the days that monitor.keep_days says",
}
"""Why the rest of each folder of a project stays."""


def stored_files(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield what a project has at the object store, by folder.

    Raises:
        StoreError: The object store cannot be used.
    """
    store = object_store()
    if store is None:
        return
    for project in snapshot.projects.values():
        listed = store.listed(_place(project))
        old = {**_steps(snapshot, store, project).unused(), **_old_published(snapshot, project, listed)}
        if old:
            yield _candidate(project, "unused", old, "")
        for folder, reason in STAYING_FOLDERS.items():
            place = f"{_place(project)}/{folder}/"
            rest = {name: info for name, info in listed.items() if name.startswith(place) and name not in old}
            if rest:
                yield _candidate(project, folder, rest, reason)


def delete_stored(
    snapshot: Snapshot, project: str, chosen: Sequence[GarbageCandidate], confirm: Callable[[], None]
) -> None:
    """Delete the objects that are unused now.

    Raises:
        StoreError: The object store cannot be used, or another process runs a loop of the project.
    """
    store = object_store()
    if store and chosen:
        rows = snapshot.projects[project]
        _steps(snapshot, store, rows).sweep((), confirm)
        old = _old_published(snapshot, rows, store.listed(f"{_place(rows)}/{PUBLISHED}"))
        confirm()
        store.delete([*old])


def _candidate(project: ProjectRows, name: str, objects: dict[str, StoredObject], reason: str) -> GarbageCandidate:
    size = sum(info.size for info in objects.values())
    return GarbageCandidate(project.name, f"{name}: {len(objects)} objects", size, reason)


def _place(project: ProjectRows) -> str:
    return f"projects/{project.name}"


def _steps(snapshot: Snapshot, store: ObjectStore, project: ProjectRows) -> StepStore:
    root = snapshot.workspace.root
    records, hashes = StepRecords(project.state, root), Hashes(snapshot.workspace.cache / "none")
    return StepStore(store, project.state, records, hashes, keep_days() * DAY_S)


def _old_published(
    snapshot: Snapshot, project: ProjectRows, listed: Mapping[str, StoredObject]
) -> dict[str, StoredObject]:
    """Return those of a project's objects that are published files whose local rule lets them go."""
    folder, old = PurePosixPath(_place(project), PUBLISHED), dict[str, StoredObject]()
    names = [name for name in map(PurePosixPath, listed) if name.is_relative_to(folder)]
    published = {name.relative_to(folder): listed[str(name)] for name in names}
    for place in PLACES:
        pattern = PurePosixPath(place.pattern).parts
        by_path: dict[PurePosixPath, dict[str, StoredObject]] = {}
        for name, info in published.items():
            if name.parts[0] == pattern[0]:
                path = PurePosixPath(*name.parts[: len(pattern)])
                by_path.setdefault(path, {})[str(folder / name)] = info
        for path, objects in by_path.items():
            used = max(info.modified for info in objects.values())
            reason = place.reason(snapshot, project.name, project.state / path)
            old |= {} if reason or snapshot.young(used, place.days()) else objects
    return old
