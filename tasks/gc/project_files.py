"""Files of a project that loops leave: step folders, pages, rejected rows, references of versions, cached models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from models.files import read_json
from tasks.gc.candidates import GarbageCandidate, children, discard, of_path, set_aside
from tasks.gc.retention import history_days, keep_days
from tasks.gc.snapshot import Snapshot
from tasks.host.locks import FOREVER_S, held


def step_folders(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the folders `work/STEP/KEY`, checkpoints included: only their age counts, a loop makes them again."""
    for project in snapshot.projects.values():
        for folder in children(project.state / "work", "*/*"):
            if folder.is_dir():
                yield of_path(snapshot, project.name, folder, keep_days())


def pages(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the pages of loops; those of loops that a root needs stay, and of loops whose records it needs."""
    for project in snapshot.projects.values():
        for folder in children(project.state / "pages", "*"):
            reason = snapshot.root_of(f"loop:{folder.name}", f"pages:{folder.name}")
            yield of_path(snapshot, project.name, folder, keep_days(), reason)


def rejected_rows(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the rows that expectations rejected, by loop."""
    for project in snapshot.projects.values():
        for folder in children(project.state / "quarantine", "*"):
            reason = snapshot.why(f"loop:{folder.name}")
            yield of_path(snapshot, project.name, folder, history_days(), reason)


def references(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the data references by which later data is compared with a version's."""
    for project in snapshot.projects.values():
        for path in children(project.state / "references", "*.json"):
            reason = snapshot.why(f"{project.name}/version:{path.stem}")
            yield of_path(snapshot, project.name, path, history_days(), reason)


def cached_models(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the downloaded versions; those in use stay, and each is downloaded again when it is needed."""
    for project in snapshot.projects.values():
        place = snapshot.workspace.cache / "models" / project.name
        named = {str(number): alias for alias, number in read_json(place / "aliases.json").items()}
        for folder in children(place, "*"):
            if folder.is_dir():
                alias = named.get(folder.name, "")
                reason = f"it is the {alias}" if alias else snapshot.young(_requested_at(folder), keep_days())
                yield of_path(snapshot, project.name, folder, keep_days(), reason)._replace(path=None)


def remove_cached(snapshot: Snapshot, chosen: Sequence[GarbageCandidate]) -> None:
    """Remove downloaded versions that nobody has asked for since they were listed."""
    for candidate in chosen:
        folder = snapshot.workspace.root / candidate.name
        with held(snapshot.workspace.locks / f"cache-{candidate.project}.lock", lambda: "in use", FOREVER_S):
            if snapshot.young(_requested_at(folder), keep_days()):
                continue
            folder.with_suffix(".json").unlink(missing_ok=True)
            aside = set_aside(folder)
        discard(aside)


def _requested_at(folder: Path) -> float:
    """Return when a cached version was asked for last: then the list of its hashes is written."""
    mark = folder.with_suffix(".json")
    return mark.stat().st_mtime if mark.exists() else 0.0
