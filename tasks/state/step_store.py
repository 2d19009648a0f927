"""The files of finished steps, and the checkpoints of running ones, at the object store of LOOPLINE_ROOT.

So another machine, or this one with an emptied disk, goes on from them: `.loopline/` is then a cache.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from models.files import Hashes
from models.pipeline.records import StepRecord
from tasks.host.object_store import DamagedError, ObjectStore, object_store
from tasks.state.snapshots import DAY_S, LocalFile, Snapshots
from tasks.state.step_records import StepRecords

FIGURES = "figures"
"""The folder below a step's work folder with the figures that the card shows."""


class StepStore:
    """Uploads and fetches what the steps of a project wrote.

    Args:
        store: The object store.
        state: The project's folder under `.loopline/projects/`.
        records: The records of the project's steps, which name files in the workspace.
        hashes: Hashes of local files.
        keep_s: How long the files of a step stay after their last use, in seconds.
    """

    def __init__(
        self, store: ObjectStore, state: Path, records: StepRecords, hashes: Hashes, keep_s: float = 14 * DAY_S
    ) -> None:
        self._store = store
        self._records, self._hashes = records, hashes
        self._work, self._place = state / "work", f"projects/{state.name}"
        self._keep_s = keep_s
        self._steps = Snapshots(store, f"{self._place}/steps", keep_s)

    def upload(self, record: StepRecord, work: Path) -> StepRecord:
        """Upload the outputs of a step that is done here, and the other files of its work folder.

        Args:
            record: The step's record.
            work: Its work folder. Its subfolders stay here but for the figures: trials, stages and checkpoints are of
                no use any more.

        Returns:
            The record with the name of the snapshot.

        Raises:
            StoreError: The store cannot be used.
        """
        beside = [path for folder in (work, work / FIGURES) for path in folder.glob("[!.]*") if path.is_file()]
        paths = {self._records.path(name) for name in record.outputs} | set(beside)
        files = {self._records.name(path): LocalFile(path, self._hashes.of(path)) for path in sorted(paths)}
        return record.model_copy(update={"snapshot": self._steps.save(files)}) if files else record

    def fetch(self, record: StepRecord, work: Path, only: Path | None = None) -> None:
        """Fetch the files of a step that this machine lacks, or has otherwise.

        Args:
            record: The step's record, which names a snapshot.
            work: The step's work folder.
            only: The path of one file of the work folder, if no other is needed.

        Raises:
            DamagedError: The store has lost them.
            StoreError: The store cannot be used, or the disk is full.
        """

        def place(name: str) -> Path | None:
            path = self._records.path(name)
            is_of_step = name in record.outputs or path.parent in (work, work / FIGURES)
            return path if is_of_step and only in (None, path) else None

        self._steps.load(record.snapshot, place)

    def check(self) -> None:
        """Check that a loop can use the store.

        Raises:
            StoreError: It cannot be reached, read or written, or another version of Loopline made it.
        """
        self._store.check()

    def checkpoints(self, folder: Path) -> Snapshots:
        """Return the snapshots of a training job, by its folder below the project's work folders."""
        return Snapshots(self._store, self._checkpoints_of(folder))

    def forget_checkpoints(self, folder: Path) -> None:
        """Delete the checkpoints of all jobs in a work folder: the step's result is recorded.

        Raises:
            StoreError: The store cannot be used.
        """
        self._store.delete(list(self._store.listed(self._checkpoints_of(folder))))

    def sweep(self, used: Iterable[StepRecord]) -> int:
        """Delete what no loop used for as long as local work folders stay; return the freed bytes.

        Args:
            used: The records of this loop; they count as used now.

        Raises:
            StoreError: The store cannot be used.
        """
        freed = self._steps.sweep({record.snapshot for record in used if record.snapshot})
        checkpoints = self._store.listed(f"{self._place}/checkpoints")
        depth = len(PurePosixPath(self._place).parts) + 3  # .../checkpoints/STEP/KEY
        young = {
            PurePosixPath(name).parts[:depth]
            for name, info in checkpoints.items()
            if info.modified > time.time() - self._keep_s
        }
        old = {name: info for name, info in checkpoints.items() if PurePosixPath(name).parts[:depth] not in young}
        self._store.delete(list(old))
        return freed + sum(info.size for info in old.values())

    def _checkpoints_of(self, folder: Path) -> str:
        return f"{self._place}/checkpoints/{folder.relative_to(self._work).as_posix()}"


def fetch_file(state: Path, workspace: Path, path: Path) -> None:
    """Fetch a file of a finished step that is not here; nothing happens if the object store has no such file.

    Args:
        state: The project's folder under `.loopline/projects/`.
        workspace: The workspace's root.
        path: A file below a step's work folder.

    Raises:
        StoreError: The object store cannot be used.
    """
    store = object_store()
    if store is None or not path.is_relative_to(state / "work"):
        return
    step, key, *_ = path.relative_to(state / "work").parts
    records = StepRecords(state, workspace)
    record = next((record for record in records.newest(step) if record.key.startswith(key) and record.snapshot), None)
    if record is not None:
        steps = StepStore(store, state, records, Hashes(workspace / "none"))
        with contextlib.suppress(DamagedError):
            steps.fetch(record, state / "work" / step / key, path)
