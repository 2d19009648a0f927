"""The registry watcher: what serves, by the newest move in the state database, as rarely and cheaply as possible.

A server that has no state database with moves of its project follows MLflow's alias.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from pathlib import Path

from models.errors import StoreError, UsageError
from models.serving.registry import RegisteredVersion
from tasks.host import database, stores
from tasks.host.store_addresses import STATE_URL
from tasks.mlflow import registry_reader
from tasks.state import champion_moves, registered_models, versions
from tasks.state.champion_moves import ServingState

FILE_S, SERVER_S = 0.25, 1.0
SETTLED_S = 1.0
"""A file that changed less than this ago may change again without a new time stamp, so it is read again."""
_log = logging.getLogger("loopline.serve")

Stamps = tuple[tuple[int, int], ...]


class RegistryWatcher:
    """Watches one registered model.

    Args:
        root: The workspace's state folder, `.loopline`.
        model: The registered model, which has the project's name.

    Raises:
        UsageError: Neither the state database nor MLflow's server is known.
    """

    def __init__(self, root: Path, model: str) -> None:
        self._root, self._model, self._uri = root, model, os.environ["MLFLOW_TRACKING_URI"]
        self._file = None if database.is_shared() else root / database.FILE
        self._last: tuple[Stamps, ServingState | None] | None = None
        self._state: ServingState | None = None
        self._is_owner_logged = False
        only_mlflow = self._file and not self.has_http and not stores.is_embedded(self._uri)
        if only_mlflow and self._newest() is None:
            raise UsageError(
                f"MLFLOW_TRACKING_URI: got a {self._uri.partition(':')[0]} database, which only MLflow can read, and "
                f"no move of {model} in {root}: set {STATE_URL} to the state database of the machines that train, or "
                "MLFLOW_TRACKING_URI to the address of MLflow's server"
            )

    @property
    def has_http(self) -> bool:
        """Whether MLflow's server can be asked for the alias."""
        return self._uri.startswith(("http://", "https://"))

    @property
    def follows_moves(self) -> bool:
        """Whether the last look found moves of this workspace; else MLflow's alias is followed."""
        return self._state is not None and not self._state.is_foreign

    @property
    def pause_s(self) -> float:
        """Seconds between two looks."""
        return FILE_S if self._file and (self._state or not self.has_http) else SERVER_S

    def champion(self) -> RegisteredVersion | None:
        """Return the champion; None if there is none.

        Raises:
            StoreError: The state database is away, or has lost the moves; or it has none, and MLflow is away.
        """
        state = self._newest()
        if state is None and self._state is not None:
            raise StoreError(f"the state database holds no move of {self._model} any more: put it back from a copy")
        self._state = state
        if state is not None and not state.is_foreign:
            self._is_owner_logged = False
            return state.champion
        champion = self.alias()
        if champion and not self._is_owner_logged:
            self._is_owner_logged = True
            if state is not None or registry_reader.foreign_owner(self._root, self._model):
                _log.warning(
                    "%s: its registered model belongs to another workspace, whose champion is served", self._model
                )
        return champion

    def alias(self) -> RegisteredVersion | None:
        """Return the version of MLflow's alias `champion`: all that a server without moves of its workspace knows.

        Raises:
            StoreError: MLflow is away, or no server of MLflow is known.
        """
        if self.has_http:
            return registry_reader.aliased(self._model)
        if self._state is not None:
            raise StoreError(
                "another workspace owns the registered model: set MLFLOW_TRACKING_URI to the address of MLflow's "
                "server, whose alias this server then follows"
            )
        with database.reading(self._root) as connection:
            registered_models.refuse_unread(connection, self._model)
        raise StoreError(f"there is no registry yet: `loopline run {self._model}` makes it")

    def challenger(self) -> str | None:
        """Return the number of the challenger, as of the last look.

        Raises:
            StoreError: MLflow, whose alias is followed, is away.
        """
        if self._state is not None and self.follows_moves:
            return self._state.challenger
        version = registry_reader.aliased(self._model, "challenger")
        return version.number if version else None

    def version(self, number: str) -> RegisteredVersion | None:
        """Return the version with this number; None if there is none.

        Raises:
            StoreError: The state database, or MLflow whose alias is followed, is away.
        """
        if self.follows_moves:
            stored = versions.version_of(self._root, self._model, number)
            return stored.registered if stored else None
        return registry_reader.numbered(self._model, number)

    def _newest(self) -> ServingState | None:
        """Return what the newest move says; a file of SQLite is read only when it changed."""
        if self._file is None:
            return champion_moves.serving_state(self._root, self._model)
        stamps = _stamps(self._file)
        if self._last is not None and self._last[0] == stamps:
            return self._last[1]
        state = champion_moves.serving_state(self._root, self._model)
        is_settled = max((changed for _, changed in stamps), default=0) < time.time_ns() - SETTLED_S * 1e9
        self._last = (stamps, state) if is_settled else None
        return state


def _stamps(path: Path) -> Stamps:
    """Return size and modification time of the database and its write-ahead log; empty if there is no database."""
    stamps = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError):
            stat = file.stat()
            stamps.append((stat.st_size, stat.st_mtime_ns))
    return tuple(stamps) if path.exists() else ()
