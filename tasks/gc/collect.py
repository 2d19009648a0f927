"""Collects the garbage of projects: what there is of each kind, why it is kept, and the removal of the rest.

Nothing is removed of a project whose loop runs. Of another one, this process takes the loop's lock and lease for the
moment in which it checks that nothing new came, removes the rows and renames the files; the bytes go afterwards.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from models.errors import StoreError
from tasks.gc import datasets, half_written, mlflow_rows, project_files, rows, stored_files
from tasks.gc.candidates import GarbageCandidate, Kind, discard, set_aside, size_and_use
from tasks.gc.snapshot import ProjectRows, Snapshot, stamp_of
from tasks.host import database
from tasks.host.leases import Lease

if TYPE_CHECKING:
    from pathlib import Path

OF_LOOPS = (
    *(Kind(kind, project_files.files_of(kind)) for kind in project_files.OF_LOOPS),
    Kind("step records", rows.step_records, rows.withdraw_records),
    Kind("object store", stored_files.stored_files, delete=stored_files.delete_stored),
    Kind("delivered lines", rows.delivered_lines, rows.withdraw_lines),
    Kind("event history", rows.past_events, rows.withdraw_events),
)
"""What a loop removes of its own project when it ends."""
KINDS = (
    *OF_LOOPS,
    *(Kind(kind, project_files.files_of(kind)) for kind in project_files.OTHERS),
    Kind("backtests", project_files.backtests, remove=project_files.remove_backtests),
    Kind("cached models", project_files.cached_models, remove=project_files.remove_cached),
    Kind("versions", mlflow_rows.old_versions, mlflow_rows.withdraw_versions, remove=mlflow_rows.remove_versions),
    Kind("runs", mlflow_rows.old_runs, mlflow_rows.withdraw_runs, remove=mlflow_rows.remove_runs),
    Kind("data in DVC's cache", datasets.old_data, remove=datasets.remove_data),
    Kind("data at DVC's remote", datasets.remote_data),
    Kind("studies", datasets.old_studies, remove=datasets.remove_studies),
    Kind("half-written files", half_written.half_written),
    Kind("Prefect's history", half_written.prefect_history),
)


@dataclass
class Collection:
    """What there is of each kind, and what was removed.

    Args:
        candidates: By kind.
        removed: Of each kind: the bytes that were removed.
        skipped: Why nothing of a project, or of a kind, was removed, by its name.
    """

    candidates: dict[str, list[GarbageCandidate]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


class Limits:
    """How long a collection may last and how much it may remove; what is left goes the next time.

    Args:
        seconds: The time from now on.
        size: Bytes. What alone has more goes alone: else it would never go.
    """

    def __init__(self, seconds: float = float("inf"), size: float = float("inf")) -> None:
        self._until, self._size, self._size_left = time.monotonic() + seconds, size, size

    def take(self, size: float) -> bool:
        """Return whether so many bytes may be removed too."""
        size = min(size, self._size)
        is_left = size <= self._size_left and time.monotonic() < self._until
        self._size_left -= size if is_left else 0
        return is_left


def find(snapshot: Snapshot, kinds: Sequence[Kind] = KINDS) -> Collection:
    """Return what there is of each kind, and why it is kept; nothing is changed."""
    return Collection({kind.name: list(kind.candidates(snapshot)) for kind in kinds})


def remove(
    snapshot: Snapshot,
    collection: Collection,
    alone: Callable[[ProjectRows], contextlib.AbstractContextManager[Lease | None]],
    limits: Limits,
    kinds: Sequence[Kind] = KINDS,
) -> None:
    """Remove what nothing keeps, as far as the limits allow, and write down what was removed.

    Args:
        snapshot: The moment at which the candidates were listed.
        collection: The candidates.
        alone: Holds a project during its block; None: a loop of it runs.
        limits: The limits.
        kinds: The kinds.

    Raises:
        StoreError: The database cannot be written.
    """
    chosen: dict[str, list[GarbageCandidate]] = {kind.name: [] for kind in kinds}
    garbage = [(name, item) for name in chosen for item in collection.candidates[name] if not item.reason]
    for name, candidate in sorted(garbage, key=lambda named: -named[1].size):  # the largest first: it may need a day
        if limits.take(candidate.size):
            chosen[name].append(candidate)
    aside: list[Path] = []
    gone = {
        name: [candidate for candidate in candidates if not candidate.project] for name, candidates in chosen.items()
    }
    try:
        _set_aside(snapshot, gone, aside)
        for project in snapshot.projects.values():
            with alone(project) as lease:
                skipped = _withdrawn(snapshot, project, chosen, lease, kinds, aside, gone)
            if skipped:
                collection.skipped[project.name] = skipped
    finally:
        for path in aside:
            discard(path)
    for kind in kinds:
        try:
            kind.remove(snapshot, gone[kind.name])
        except StoreError as error:  # a tool is away: its rows say what is left, and the next clean-up removes it
            collection.skipped[kind.name] = str(error)
            continue
        collection.removed[kind.name] = sum(candidate.size for candidate in gone[kind.name])


def _withdrawn(
    snapshot: Snapshot,
    project: ProjectRows,
    chosen: Mapping[str, Sequence[GarbageCandidate]],
    lease: Lease | None,
    kinds: Sequence[Kind],
    aside: list[Path],
    gone: dict[str, list[GarbageCandidate]],
) -> str:
    """Remove a project's rows and rename its files; return why not, or an empty text."""
    mine = {
        name: [candidate for candidate in candidates if candidate.project == project.name]
        for name, candidates in chosen.items()
    }
    if not any(mine.values()):
        return ""
    if lease is None:
        return "a loop of it runs"
    with database.writing(snapshot.workspace.state) as connection:
        lease.check(connection)
        if stamp_of(connection, project.name) != project.stamp:
            return "a loop or a move came meanwhile"
        for kind in kinds:
            if mine[kind.name]:
                kind.withdraw(connection, project.name, mine[kind.name])
    for name, candidates in mine.items():
        gone[name] += candidates
    _set_aside(snapshot, mine, aside)
    for kind in kinds:
        kind.delete(snapshot, project.name, mine[kind.name], lease.confirm)
    return ""


def _set_aside(snapshot: Snapshot, chosen: Mapping[str, Sequence[GarbageCandidate]], aside: list[Path]) -> None:
    """Rename files that nobody has written since they were listed."""
    for candidate in itertools.chain(*chosen.values()):
        if candidate.path is not None and size_and_use(candidate.path)[1] <= snapshot.now:
            with contextlib.suppress(FileNotFoundError):
                aside.append(set_aside(candidate.path))
