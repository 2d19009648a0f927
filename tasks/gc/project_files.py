"""Files of a project: where each kind lies, how long it stays after its last use, and what needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from models.files import read_json
from tasks.gc.candidates import GarbageCandidate, children, discard, of_path, set_aside
from tasks.gc.retention import history_days, keep_days
from tasks.gc.snapshot import Snapshot
from tasks.host.locks import FOREVER_S, held, tried

CACHE_DAYS = 30.0
"""How long the entries of backtests and unfinished batch predictions stay that nobody used."""


class FolderKind(NamedTuple):
    """Where files of one kind lie.

    Args:
        kind: For people.
        pattern: Below the project's state folder.
        days: How long they stay after their last use.
        reason: Why a path stays whatever its age, from the snapshot, the project's name and the path; empty: it may go.
    """

    kind: str
    pattern: str
    days: Callable[[], float]
    reason: Callable[[Snapshot, str, Path], str]


def _nothing(_: Snapshot, __: str, ___: Path) -> str:
    """Return that nothing needs it: a loop makes it again."""
    return ""


def _loop(snapshot: Snapshot, _: str, path: Path) -> str:
    return snapshot.why(f"loop:{path.name}")


def _shown_loop(snapshot: Snapshot, _: str, path: Path) -> str:
    """Return the root that needs the loop or its records: pages of others are in MLflow too."""
    return snapshot.root_of(f"loop:{path.name}", f"pages:{path.name}")


def _version(snapshot: Snapshot, project: str, path: Path) -> str:
    return snapshot.why(f"{project}/version:{path.stem}")


def _data(snapshot: Snapshot, _: str, path: Path) -> str:
    return snapshot.why(f"data:{path.stem}")


def _finished(_: Snapshot, __: str, path: Path) -> str:
    return "the ids of its rows are in the prediction log" if (path / "done.json").exists() else ""


def _logged(_: Snapshot, __: str, ___: Path) -> str:
    return "its rows stay for ever, or for the days that monitor.keep_days says"


PLACES = (
    FolderKind("step folders", "work/*/*", keep_days, _nothing),
    FolderKind("pages", "pages/*", keep_days, _shown_loop),
    FolderKind("data pages", "data/*.json", lambda: 0.0, _data),
    FolderKind("rejected rows", "quarantine/*", history_days, _loop),
    FolderKind("data references", "references/*.json", history_days, _version),
    FolderKind("shadow logs", "shadows/*", history_days, _version),
    FolderKind("batch predictions", "batch/????????????????", lambda: CACHE_DAYS, _finished),
    FolderKind("predictions and labels", "predictions", history_days, _logged),
    FolderKind("predictions and labels", "labels", history_days, _logged),
)
OF_LOOPS = ("step folders", "pages", "data pages", "rejected rows", "data references", "batch predictions")
OTHERS = ("shadow logs", "predictions and labels")


def files_of(kind: str) -> Callable[[Snapshot], Iterator[GarbageCandidate]]:
    """Return the function that lists the files of a kind."""

    def listed(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
        for project in snapshot.projects.values():
            for place in (place for place in PLACES if place.kind == kind):
                for path in children(project.state, place.pattern):
                    reason = place.reason(snapshot, project.name, path)
                    yield of_path(snapshot, project.name, path, place.days(), reason)

    return listed


def backtests(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the cached trainings and predictions of backtests, which a backtest makes again; its page stays."""
    for project in snapshot.projects.values():
        for path in children(project.state, "backtest/*/*"):
            yield of_path(snapshot, project.name, path, CACHE_DAYS)._replace(path=None)


def remove_backtests(snapshot: Snapshot, chosen: Sequence[GarbageCandidate]) -> None:
    """Remove what no backtest has used since it was listed; a project whose backtest runs waits for the next time."""
    for candidate in chosen:
        state = snapshot.projects[candidate.project].state
        path = snapshot.workspace.root / candidate.name
        with tried(state / "backtest" / "backtest.lock") as is_free:
            if is_free and path.exists() and not of_path(snapshot, candidate.project, path, CACHE_DAYS).reason:
                discard(set_aside(path))


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
