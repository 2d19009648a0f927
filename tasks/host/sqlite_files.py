"""SQLite's files: the address by which a file is read, and the cure of each of SQLite's errors."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from models.errors import StoreError, one_line
from models.files import DISK_IS_FULL

_UNWRITABLE = "change its owner, or set LOOPLINE_HOME to a folder that can be written"
_CURES = {
    "is full": DISK_IS_FULL,
    "I/O error": f"{DISK_IS_FULL}; or the disk fails: look at the system log",
    "readonly": f"it cannot be written: {_UNWRITABLE}",
    "unable to open": f"it cannot be opened: {_UNWRITABLE}",
    "locked": "another process writes to it: run again",
}
_DAMAGE = ("malformed", "not a database")


def cure(error: object, damaged: str) -> str | None:
    """Return what is wrong with a file of SQLite, and what to do about it; None for a mistake in a statement.

    Args:
        error: SQLite's error, or its text.
        damaged: What to do about a damaged file.
    """
    text = str(error)
    if any(sign in text for sign in _DAMAGE):
        return f"it is damaged: {damaged}"
    return next((words for sign, words in _CURES.items() if sign in text), None)


def store_error(place: object, error: object, damaged: str) -> StoreError:
    """Return an error of SQLite as a StoreError that names the cure.

    Args:
        place: The file, and what was done with it if that needs words.
        error: SQLite's error.
        damaged: What to do about a damaged file.
    """
    reason = one_line(error)
    return StoreError(f"{place}: {cure(reason, damaged) or f'{reason}: {damaged}'}")


def read_only(file: Path) -> str:
    """Return the URI by which a file is read without a change.

    SQLite makes a file beside a database with a write-ahead log even to read it, which a read-only folder refuses. If
    such a folder holds no log, all rows are in the database itself, and it is read as a file that does not change.
    """
    log = file.with_name(f"{file.name}-wal")
    is_fixed = not os.access(file.parent, os.W_OK) and not log.exists()
    return f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if is_fixed else ''}"


def copy_unchanged(file: Path, folder: Path) -> Path:
    """Copy a database into a folder, and leave its own folder as it is; return the copy.

    Raises:
        StoreError: It cannot be read.
    """
    copy = folder / file.name
    try:
        if not file.with_name(f"{file.name}-wal").exists():  # all rows are in the file, and no process has it open
            shutil.copyfile(file, copy)
            return copy
        with (
            contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as stored,
            contextlib.closing(sqlite3.connect(copy)) as written,
        ):
            stored.backup(written)
    except (OSError, sqlite3.Error) as error:
        raise store_error(file, error, "put it back from a copy") from error
    return copy
