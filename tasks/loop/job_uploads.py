"""Uploads the checkpoints of a training job in the background, and fetches them on the machine that takes it over.

A snapshot holds what a rank reads when it goes on: the newest whole checkpoint, and the results of the stages before
the training. It lies below the epoch of the loop's lease: of two processes that train the same job, the one that took
the loop over last wins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from models.errors import LeaseLostError, StoreError
from models.files import read_json, sha256
from models.training.job import (
    CHECKPOINT_MANIFEST,
    CHECKPOINTS,
    ERROR_FILE,
    JOB_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    STOP_FILE,
)
from tasks.host.object_store import DamagedError
from tasks.loop.loop import Loop
from tasks.state.snapshots import LocalFile
from tasks.state.step_store import Checkpoints

LOOK_S = 0.5
_OF_THE_MACHINE = {JOB_FILE, PROGRESS_FILE, STOP_FILE, ERROR_FILE}
"""Files that name places of one machine, or that pass between the ranks and the process that waits for them."""
_NEWS = (f"/{CHECKPOINT_MANIFEST}", f"/{RESULT_FILE}")
"""Ends of the names that are written last: of a checkpoint, and of a stage before the training."""


@contextlib.contextmanager
def uploaded(loop: Loop, folder: Path) -> Iterator[None]:
    """Go on from the newest checkpoint of any machine, and upload those that the block writes; nothing without a root.

    Raises:
        StoreError: The store cannot be used when the job begins. Later it is tried again at the next checkpoint.
    """
    store = loop.step_cache.store
    if store is None:
        yield
        return
    uploader = _Uploader(loop, store.checkpoints(folder), folder)
    uploader.fetch()
    uploader.start()
    try:
        yield
    except BaseException:
        uploader.end(upload=True)
        raise
    uploader.end(upload=False)


class _Uploader:
    """Uploads whatever is new in a job's folder, in a thread of its own."""

    def __init__(self, loop: Loop, checkpoints: Checkpoints, folder: Path) -> None:
        self._loop, self._checkpoints, self._folder = loop, checkpoints, folder
        self._count = 0
        self._uploaded: set[str] = set()
        self._digests: dict[tuple[str, int, int], str] = {}
        self._ended = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="loopline-checkpoints", daemon=True)

    def fetch(self) -> None:
        """Fetch the newest snapshot that is whole; files that are here already stay."""
        names = self._checkpoints.names()
        self._count = 1 + int(names[-1].split("-")[1]) if names else 0
        for name in reversed(names):
            try:
                self._checkpoints.load(name, self._missing)
            except DamagedError as error:
                self._loop.report.note(f"a checkpoint is passed over: {error}")
                continue
            return

    def start(self) -> None:
        """Begin to look for checkpoints."""
        self._thread.start()

    def end(self, *, upload: bool) -> None:
        """Stop; upload the last checkpoint if the job is not done, such as after a preemption."""
        self._ended.set()
        self._thread.join()
        if upload:
            self._look()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            if not self._look():
                return

    def _look(self) -> bool:
        """Upload the folder's new checkpoint, if there is one; return False if another process has the loop."""
        try:
            names = {name for name in _named(self._folder) if name.endswith(_NEWS)}
            if names - self._uploaded:
                self._upload()
                self._uploaded = names
            self._trouble = ""
        except LeaseLostError:
            return False  # the loop's own next act says so
        except FileNotFoundError:
            return True  # the ranks have removed it meanwhile: there is a newer one
        except StoreError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._loop.report.note(f"a checkpoint is not uploaded, and will be tried again: {error}")
        return True

    def _upload(self) -> None:
        with _linked(self._folder) as copy:
            files = {name: LocalFile(path, self._digest(path)) for name, path in _named(copy).items()}
            self._loop.confirm()
            self._checkpoints.save(files, self._loop.epoch, self._count)
        self._count += 1

    def _digest(self, path: Path) -> str:
        """Return the SHA-256 of a file: as its checkpoint's manifest has it, or from its bytes, which are read once."""
        if digest := read_json(path.with_name(CHECKPOINT_MANIFEST)).get(path.name):
            return str(digest)
        stat = path.stat()
        key = (str(stat.st_ino), stat.st_size, stat.st_mtime_ns)
        if key not in self._digests:
            self._digests[key] = sha256(path)
        return self._digests[key]

    def _missing(self, name: str) -> Path | None:
        path = self._folder / name
        if ".." in path.parts or not path.is_relative_to(self._folder):
            raise DamagedError(f"{name}: leads out of the job's folder")
        return None if path.exists() else path


def _named(folder: Path) -> dict[str, Path]:
    """Return the files of a job's folder that a resumed job reads, by their names in it."""
    if not folder.is_dir():
        return {}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {path.relative_to(folder): path for path in files if path.name not in _OF_THE_MACHINE}
    whole = [name.parent for name in names if name.match(f"{CHECKPOINTS}/*/{CHECKPOINT_MANIFEST}")]
    newest = {folder.parent: folder for folder in whole}  # the last in the order of the steps
    return {
        name.as_posix(): path
        for name, path in names.items()
        if not any(part.startswith(".") for part in name.parts)
        and (CHECKPOINTS not in name.parts or name.parent in newest.values())
        and not name.name.endswith((".log", ".tmp"))
    }


@contextlib.contextmanager
def _linked(folder: Path) -> Iterator[Path]:
    """Yield a folder of hard links to a job's files: the ranks may remove a checkpoint while it is uploaded."""
    copy = Path(tempfile.mkdtemp(dir=folder, prefix=f".uploads.{os.getpid()}-", suffix=".tmp"))
    try:
        for name, path in _named(folder).items():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(path, copy / name)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
