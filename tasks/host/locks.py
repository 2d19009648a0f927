"""Locks between the processes of this machine; the kernel lets go of one when its holder dies."""

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
    """Hold the lock file `path`, whose folder is made, while in the block.

    Args:
        path: The lock file.
        busy: Makes the message if another process holds the lock.
        timeout_s: How long to wait for that process.

    Raises:
        StoreError: Another process holds it, or the folder cannot be made.
    """
    with storing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tried(path, timeout_s) as is_ours:
        if not is_ours:
            raise StoreError(busy())
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file `path`; it is ours for an instant where none does.

    If it cannot be opened (a read-only disk, another user's file), it counts as held.
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
    """Hold the lock file `path` while in the block; false where another process holds it.

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
