"""The registry watcher: polls the champion, as rarely and as cheaply as possible."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from models.errors import StoreError, UsageError
from models.serving.registry import RegisteredVersion
from tasks.host import stores
from tasks.mlflow import registry_reader

EMBEDDED_S, SERVER_S = 0.25, 1.0
SETTLED_S = 1.0
"""A file that changed less than this ago may change again without a new time stamp, so it is read again."""

Stamps = tuple[tuple[int, int], ...]


class RegistryWatcher:
    """Watches one registered model.

    Raises:
        UsageError: The registry is a database that only MLflow itself can read.
    """

    def __init__(self, model: str) -> None:
        self._model, self._uri = model, os.environ["MLFLOW_TRACKING_URI"]
        self._known: RegisteredVersion | None = None
        self._seen: Stamps | None = None
        self._file = stores.database_file(self._uri) if stores.is_embedded(self._uri) else None
        if self._file is None and not self._uri.startswith(("http://", "https://")):
            raise UsageError(
                f"MLFLOW_TRACKING_URI: got a {self._uri.partition(':')[0]} database, expected the address of MLflow's "
                "server: a server of models follows that, or the workspace's own registry"
            )

    @property
    def pause_s(self) -> float:
        """Seconds between two polls."""
        return SERVER_S if self._file is None else EMBEDDED_S

    def champion(self) -> RegisteredVersion | None:
        """Return the champion; None if the registry has none.

        Raises:
            StoreError: The registry is away, or does not exist yet.
        """
        if self._file is None:
            return registry_reader.aliased(self._model)
        stamps = _stamps(self._file)
        if not stamps:
            raise StoreError(f"there is no registry yet: `loopline run {self._model}` makes it")
        if stamps != self._seen:
            self._known = registry_reader.aliased(self._model)
            is_settled = max(changed for _, changed in stamps) < time.time_ns() - SETTLED_S * 1e9
            self._seen = stamps if is_settled else None
        return self._known


def _stamps(path: Path) -> Stamps:
    """Return size and modification time of the database and its write-ahead log; empty if there is no database."""
    stamps = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            stamps.append((stat.st_size, stat.st_mtime_ns))
    return tuple(stamps) if path.exists() else ()
