"""Locks between the processes of this machine; the kernel releases a lock when its holder dies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from models.errors import StoreError
from models.files import storing

FOREVER_S = -1.0
"""As a timeout: wait until the lock is free."""


@contextlib.contextmanager
def held(path: Path, busy: Callable[[], str], timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` during the block; create its folder if needed.

    Args:
        path: The lock file.
        busy: Returns the error message if another process holds the lock.
        timeout_s: Time to wait for that process, in seconds.

    Raises:
        StoreError: Another process holds the lock, or the folder cannot be created.
    """
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tried(path, timeout_s) as is_ours:
        if not is_ours:
            raise StoreError(busy())
        yield


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock file `path`; the check takes a free lock for an instant.

    A lock file that cannot be opened (a read-only disk, another user's file) counts as held.
    """
    if not path.exists():
        return False
    try:
        with tried(path) as is_free:
            return not is_free
    except (OSError, StoreError):
        return True


@contextlib.contextmanager
def tried(path: Path, timeout_s: float = 0.0) -> Iterator[bool]:
    """Try to hold the lock file `path` during the block; yield false if another process holds it.

    Raises:
        StoreError: The file cannot be opened for writing (a read-only disk, another user's file).
    """
    import filelock

    lock = filelock.FileLock(path)
    try:
        with storing(path):
            lock.acquire(timeout=timeout_s)
    except filelock.Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
