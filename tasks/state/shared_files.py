"""Files of a project's state folder that other machines read under their own names, at the object store.

projects/NAME/published/PATH/EPOCH   a file, as the holder of this epoch of the loop's lease published it

The highest epoch counts: a machine that lost its loop, and publishes after a pause, replaces nothing of the machine
that took the loop over. Pages and JSON are compressed there: a card of 196 kB with its pictures takes 34.
Without LOOPLINE_ROOT all machines read the folder itself, and nothing is uploaded or fetched.
"""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

from models.errors import StoreError
from models.files import write_bytes
from tasks.host.object_store import ObjectStore, object_store

PUBLISHED = "published"
"""The folder of a project at the object store."""
_COMPRESSED = (".html", ".json")
_GZIP = b"\x1f\x8b"
"""How gzip's files begin, and no page and no JSON: those of an earlier Loopline lie there as they are."""


def publish(state: Path, epoch: int, *paths: Path) -> None:
    """Upload files of the state folder; each replaces those of its name that an earlier epoch published.

    Args:
        state: The project's folder under `.loopline/projects/`.
        epoch: The epoch of the loop's lease.
        paths: Files below it.

    Raises:
        StoreError: The object store cannot be used.
    """
    if store := object_store():
        for path in paths:
            name = f"{_published(state, path)}/{epoch:08d}"
            if path.suffix in _COMPRESSED:
                store.put(name, gzip.compress(path.read_bytes(), mtime=0))
            else:
                store.put_file(name, path)
            store.delete([earlier for earlier in store.listed(_published(state, path)) if earlier < name])


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
    if store and (content := _newest(store, state, path)) is not None:
        write_bytes(path, content)


def _newest(store: ObjectStore, state: Path, path: Path) -> bytes | None:
    while names := list(store.listed(_published(state, path))):
        if (content := store.get(names[-1])) is not None:
            return gzip.decompress(content) if content.startswith(_GZIP) else content
        # a later epoch has just replaced it
    return store.get(f"projects/{state.name}/files/{path.relative_to(state).as_posix()}")  # of an earlier Loopline


def _published(state: Path, path: Path) -> str:
    return f"projects/{state.name}/{PUBLISHED}/{path.relative_to(state).as_posix()}"
