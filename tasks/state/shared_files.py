"""Files of a project's state folder that other machines read under their own names, at the object store.

Without LOOPLINE_ROOT all machines read the folder itself, and nothing is uploaded or fetched.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from models.errors import StoreError
from models.files import write_bytes
from tasks.host.object_store import object_store


def publish(state: Path, *paths: Path) -> None:
    """Upload files of the state folder; each replaces an earlier one of its name.

    Args:
        state: The project's folder under `.loopline/projects/`.
        paths: Files below it.

    Raises:
        StoreError: The object store cannot be used.
    """
    if store := object_store():
        for path in paths:
            store.put_file(_name(state, path), path)


def fetch(state: Path, path: Path) -> None:
    """Fetch a file that is not here; nothing happens if no machine has published it.

    Raises:
        StoreError: The object store cannot be used.
    """
    if not path.exists():
        _replace(state, path)


def refresh(state: Path, path: Path) -> None:
    """Fetch the newest state of a file that any machine may have published; what is here stays if the store is away."""
    with contextlib.suppress(StoreError):
        _replace(state, path)


def _replace(state: Path, path: Path) -> None:
    store = object_store()
    if store and (content := store.get(_name(state, path))) is not None:
        write_bytes(path, content)


def _name(state: Path, path: Path) -> str:
    return f"projects/{state.name}/files/{path.relative_to(state).as_posix()}"
