"""The write-ahead log of a server, in segments: one frame per request, until the compactor has moved it.

<state>/serving/predictions/, labels/
    <time>-<pid>.seg          has one writer, which holds its lock until the file is large or the writer ends
    <time>-<pid>.seg.moved    how far it was moved, in bytes; a hint: `DeltaLog.offsets` has the valid offset
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from models.errors import StoreError
from models.files import storing
from models.serving.framing import framed

SEGMENT_BYTES = 1 << 24
STALE_S = 3600.0
KINDS: tuple[Literal["predictions", "labels"], ...] = ("predictions", "labels")
_SUFFIX, _MOVED, DAMAGED = ".seg", ".moved", ".damaged"


def segments_folder(state: Path, kind: Literal["predictions", "labels"] = "predictions") -> Path:
    """Return the segments' folder of the project whose state folder is `state`."""
    return state / "serving" / kind


class SegmentWriter:
    """Writes one process's records of one kind for one project; threads may share it.

    Args:
        folder: The segments' folder; the first record creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._file = -1
        self._written = 0

    def write(self, payload: bytes) -> None:
        """Append a record; on return it survives the end of this process, even a kill.

        Raises:
            StoreError: The disk is full or the folder cannot be written; nothing was added.
        """
        frame = framed(payload)
        with self._lock:
            try:
                if self._file < 0 or self._written >= SEGMENT_BYTES:
                    self._begin()
                num_written = os.write(self._file, frame)
                if num_written < len(frame):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
            except OSError as error:
                self._take_back(error)
                raise _as_store_error(self._folder, error) from error
            self._written += num_written

    def close(self) -> None:
        """Close the file; the next record starts a new one."""
        with self._lock:
            self._let_go()

    def _begin(self) -> None:
        """Create and lock a hidden file, then rename it: the compactor treats a file without a lock as abandoned."""
        self._let_go()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{time.time_ns():020d}-{os.getpid()}{_SUFFIX}"
        hidden = path.with_name(f".{path.name}.tmp")
        file = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except BaseException:
            os.close(file)
            hidden.unlink(missing_ok=True)
            raise
        self._file, self._written = file, 0

    def _take_back(self, error: OSError) -> None:
        """Cut off a partly written record: records after a torn one would never be read."""
        if self._file < 0:
            return
        try:
            os.ftruncate(self._file, self._written)
        except OSError:
            self._let_go()
        if error.errno == errno.EFBIG:  # this file has reached its limit, another one may not have
            self._let_go()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self._written = -1, 0


@dataclass(frozen=True)
class Segment:
    """A file of records, as readers see it."""

    path: Path

    @property
    def name(self) -> str:
        """The file's name, which is never used again."""
        return self.path.name

    @property
    def size(self) -> int:
        """Bytes written so far; 0 if the file was deleted."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def is_left(self) -> bool:
        """Whether its writer has ended or changed to another file: the kernel releases the lock of a dead process."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    @property
    def moved(self) -> int:
        """How many bytes were moved, according to the note beside the file."""
        try:
            return int(self._note.read_text())
        except (OSError, ValueError):
            return 0

    def note_moved(self, offset: int) -> None:
        """Write the note of how many bytes were moved; a lost note only costs time."""
        temporary = self._note.with_name(f".{self._note.name}.tmp")
        with contextlib.suppress(OSError):
            temporary.write_text(str(offset))
            temporary.replace(self._note)

    def read(self, start: int) -> bytes:
        """Return the bytes from `start` on."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read()

    def remove(self) -> None:
        """Delete the note and the file, once all records are moved."""
        self._note.unlink(missing_ok=True)  # first: nothing looks for a note without its file
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> Path:
        """Rename a damaged file so that it is not read again, and keep it for a person to check."""
        aside = self.path.with_name(f"{self.path.name}{DAMAGED}")
        self.path.rename(aside)
        self._note.unlink(missing_ok=True)
        return aside

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}{_MOVED}")


def segments(folder: Path) -> list[Segment]:
    """Return the segments in a folder, oldest first."""
    return [Segment(folder / name) for name in sorted(_names(folder))]


def waiting(folder: Path) -> list[Segment]:
    """Return the segments with records not moved yet, or without a writer; usually none, which is cheap to check."""
    return [segment for segment in segments(folder) if segment.size > segment.moved or segment.is_left]


def sweep(folder: Path) -> None:
    """Delete hidden files of writers that were killed before they wrote anything."""
    for path in folder.glob(f".*{_SUFFIX}*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _as_store_error(folder: Path, error: OSError) -> StoreError:
    try:
        with storing(folder):
            raise error
    except StoreError as refusal:
        return refusal
    except OSError:
        return StoreError(
            f"{folder}: cannot be written ({error.strerror}): free some space, or change its owner or rights"
        )


def _names(folder: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            if path.name.endswith(_SUFFIX):
                yield path.name
