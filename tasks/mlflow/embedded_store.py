"""The tracking store in the workspace's own file; it is created once, completely or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.files import storing, write_text
from tasks.host import sqlite_files
from tasks.host.stores import artifact_root, database_file, has_file, initialised_mark, is_embedded, mlflow_lock
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.client import client
from tasks.mlflow.lost_store import refuse_lost_file

if TYPE_CHECKING:
    from mlflow import MlflowClient


def open_client(workspace: Workspace) -> MlflowClient:
    """Return a client of the tracking store; the embedded one is created first, a server is asked whether it answers.

    Raises:
        StoreError: The store cannot be opened or created, was lost, or does not answer within a few seconds.
    """
    initialise(workspace)
    registry_reader.check_answers()
    return client()


def initialise(workspace: Workspace, environ: Mapping[str, str] = os.environ) -> None:
    """Create the embedded tracking store once, in one process; other processes wait.

    If several processes use MLflow for the first time at once, its schema migration crashes. MLflow also sets no WAL.

    Raises:
        StoreError: The store was lost, cannot be created, or its lock is held for more than two minutes.
    """
    uri = environ["MLFLOW_TRACKING_URI"]
    if not is_embedded(uri):
        return
    mark = initialised_mark(workspace)
    if mark.exists() and has_file(uri):
        return
    with storing(mark), mlflow_lock(workspace):
        if mark.exists() and has_file(uri):
            return
        refuse_lost_file(workspace, uri)
        database_file(uri).parent.mkdir(parents=True, exist_ok=True)
        artifact_root(workspace).mkdir(parents=True, exist_ok=True)
        _make(database_file(uri))
        write_text(mark, f"{artifact_root(workspace)}\n")


def settle(uri: str) -> None:
    """Move the write-ahead log into the file of a `sqlite:///` URI: no later end of a process changes the file."""
    with contextlib.closing(sqlite3.connect(database_file(uri))) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _make(path: Path) -> None:
    """Update the schema; a new file is renamed only when complete: a kill or a full disk leaves no partial file."""
    if path.exists():
        _migrate(path)
    else:
        new = path.with_name(f".{path.name}.tmp")
        new.unlink(missing_ok=True)
        try:
            _migrate(new)
            new.replace(path)
        finally:
            for journal_file in path.parent.glob(f"{new.name}*"):  # SQLite's journal is beside it
                journal_file.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def _migrate(path: Path) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_tables(f"sqlite:///{path}")
    except SQLAlchemyError as error:
        reason = str(error).splitlines()[0]
        raise sqlite_files.store_error(path, reason, "put it back from a copy, or move it away") from error


def make_tables(uri: str) -> None:
    """Make MLflow's tables in a database, or update those of an older MLflow.

    Raises:
        SQLAlchemyError: The database cannot be used.
    """
    from mlflow.db import commands  # `mlflow db upgrade`; all of `mlflow.cli` takes 1.6 CPU-s more to import

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    commands.main(["upgrade", uri], standalone_mode=False)
