"""The files of finished steps, and the checkpoints of running ones, at the object store of LOOPLINE_ROOT.

So another machine, or this one with an emptied disk, goes on from them: `.loopline/` is then a cache.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from models.files import Hashes
from models.pipeline.records import StepRecord
from tasks.host.object_store import DamagedError, ObjectStore, StoredObject, object_store
from tasks.state.snapshots import DAY_S, LocalFile, Snapshots
from tasks.state.step_records import StepRecords

FIGURES = "figures"
"""The folder below a step's work folder with the figures that the card shows."""
KEEP = 2
"""Number of snapshots of a job: if the newest one is torn, the one before is used."""
_EPOCH = "epoch-"


class Checkpoints:
    """The snapshots of one training job, by the epochs of the leases under which they were saved.

    PLACE/epoch-EPOCH/   what the holder of this epoch saved, by names `EPOCH-COUNT-SHA256`

    A machine writes and deletes below its own epoch, and deletes below earlier ones. So one that lost its loop, and
    goes on after a pause of any length, harms nothing of the machine that took the loop over. No clock decides.

    Args:
        store: The object store.
        place: The prefix of the job. Those of an earlier Loopline lie there without a folder of their epoch.
    """

    def __init__(self, store: ObjectStore, place: str) -> None:
        self._store = store
        self._place = PurePosixPath(place)

    def names(self) -> list[str]:
        """Return the names of all snapshots; the newest of the highest epoch is the last."""
        return sorted(self._prefixes())

    def digests(self, name: str) -> dict[str, str]:
        """Return the SHA-256 of each file of a snapshot; see `Snapshots.digests`."""
        return self._holding(name).digests(name)

    def load(self, name: str, place: Callable[[str], Path | None]) -> None:
        """Download the files of a snapshot; see `Snapshots.load`."""
        self._holding(name).load(name, place)

    def save(self, files: Mapping[str, LocalFile], epoch: int, count: int) -> None:
        """Save a snapshot, and delete what nobody needs any more: all but the last KEEP, and those of earlier epochs.

        Args:
            files: The files by their names in the snapshot.
            epoch: The epoch of this process's lease.
            count: The number of the snapshot, above those of its epoch so far.

        Raises:
            StoreError: The store cannot be used.
            FileNotFoundError: A file has gone meanwhile.
        """
        own = Snapshots(self._store, f"{self._place}/{_EPOCH}{epoch:08d}")
        own.save(files, f"{epoch:08d}-{count:08d}-")
        own.keep_newest(KEEP)
        if len(own.names()) == KEEP:
            self.forget(epoch - 1)

    def forget(self, epoch: int) -> None:
        """Delete what was saved under this epoch and earlier ones; of all jobs, if the place is that of several.

        Raises:
            StoreError: The store cannot be used.
        """
        self._store.delete([path for path in self._store.listed(str(self._place)) if _epoch_of(path) <= epoch])

    def _holding(self, name: str) -> Snapshots:
        """Return the snapshots among which this one is; it may be in none."""
        return Snapshots(self._store, self._prefixes().get(name, str(self._place)))

    def _prefixes(self) -> dict[str, str]:
        """Return the prefix of each snapshot, by its name."""
        paths = map(PurePosixPath, self._store.listed(str(self._place)))
        manifests = [path for path in paths if path.parent.name == "manifests"]
        return {path.stem: str(path.parents[1]) for path in manifests if _job_of(path.parents[1]) == self._place}


def highest_epoch(state: Path) -> int:
    """Return the highest epoch in the names of a project's checkpoints and pages at the object store; 0 if it has none.

    The lease's epochs go on above it: a state database that was restored from a copy counts from an earlier one.

    Args:
        state: The project's folder under `.loopline/projects/`.

    Raises:
        StoreError: The object store cannot be used.
    """
    store = object_store()
    if store is None:
        return 0
    place = f"projects/{state.name}"
    published = (path for name in ("card.html", "reports") for path in store.listed(f"{place}/published/{name}"))
    epochs = [int(PurePosixPath(path).name) for path in published]
    return max([*epochs, *map(_epoch_of, store.listed(f"{place}/checkpoints"))], default=0)


def last_uses(project: str) -> dict[str, float]:
    """Return when a loop last used each snapshot of a project's steps, by its name; empty without an object store.

    Up to a day too early: a snapshot in use is renewed at most once a day.

    Raises:
        StoreError: The object store cannot be used.
    """
    store = object_store()
    return Snapshots(store, f"projects/{project}/steps").last_uses() if store else {}


def _job_of(prefix: PurePosixPath) -> PurePosixPath:
    """Return the prefix of a job, from one that may end with an epoch."""
    return prefix.parent if prefix.name.startswith(_EPOCH) else prefix


def _epoch_of(path: str) -> int:
    """Return the epoch in an object's name; 0 if it has none."""
    epochs = (part.removeprefix(_EPOCH) for part in PurePosixPath(path).parts if part.startswith(_EPOCH))
    return int(next(epochs, 0))


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

    def upload(self, record: StepRecord, work: Path, epoch: int) -> StepRecord:
        """Upload the outputs of a step that is done here, and the other files of its work folder.

        Args:
            record: The step's record.
            work: Its work folder. Its subfolders stay here but for the figures: trials, stages and checkpoints are of
                no use any more.
            epoch: The epoch of this process's lease, with which the snapshot's name begins.

        Returns:
            The record with the name of the snapshot.

        Raises:
            StoreError: The store cannot be used.
        """
        beside = [path for folder in (work, work / FIGURES) for path in folder.glob("[!.]*") if path.is_file()]
        paths = {self._records.path(name) for name in record.outputs} | set(beside)
        files = {self._records.name(path): LocalFile(path, self._hashes.of(path)) for path in sorted(paths)}
        return record.model_copy(update={"snapshot": self._steps.save(files, f"{epoch:08d}-")}) if files else record

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

    def checkpoints(self, folder: Path) -> Checkpoints:
        """Return the snapshots of a training job, or of all jobs in a folder, below the project's work folders."""
        return Checkpoints(self._store, f"{self._place}/checkpoints/{folder.relative_to(self._work).as_posix()}")

    def renew(self, used: Iterable[StepRecord]) -> None:
        """Let the files of steps count as used now.

        Raises:
            StoreError: The store cannot be used.
        """
        self._steps.renew({record.snapshot for record in used if record.snapshot})

    def unused(self) -> dict[str, StoredObject]:
        """Return the objects that no loop used for as long as local work folders stay.

        Raises:
            StoreError: The store cannot be used.
        """
        return {**self._steps.unused(), **self._old_checkpoints()}

    def sweep(self, used: Iterable[StepRecord], confirm: Callable[[], None]) -> int:
        """Delete what no loop used for as long as local work folders stay; return the freed bytes.

        Args:
            used: The records of this loop; they count as used now.
            confirm: Raises unless this process still runs the loop; called between each look and what it deletes.

        Raises:
            StoreError: The store cannot be used, or another process runs the loop.
        """
        freed = self._steps.sweep({record.snapshot for record in used if record.snapshot}, confirm)
        old = self._old_checkpoints()
        confirm()
        self._store.delete(list(old))
        return freed + sum(info.size for info in old.values())

    def _old_checkpoints(self) -> dict[str, StoredObject]:
        """Return the checkpoints of jobs of which none was saved for so long."""
        checkpoints = self._store.listed(f"{self._place}/checkpoints")
        depth = len(PurePosixPath(self._place).parts) + 3  # .../checkpoints/STEP/KEY
        young = {
            PurePosixPath(name).parts[:depth]
            for name, info in checkpoints.items()
            if info.modified > time.time() - self._keep_s
        }
        return {name: info for name, info in checkpoints.items() if PurePosixPath(name).parts[:depth] not in young}


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
