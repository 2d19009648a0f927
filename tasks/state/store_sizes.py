"""Sizes of a workspace's stores: the dashboard's server measures them at intervals and saves them for readers.

Walking the files of 10,000 loops takes seconds, so readers do not wait for a measurement.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from pydantic import BaseModel, Field
from sqlalchemy import select

from tasks.host import database
from tasks.host.tables import store_sizes
from tasks.host.workspace import Workspace

STORES = ("projects", "mlflow", "prefect", "optuna", "dvc", "cache")


class StoreSizes(BaseModel):
    """Bytes by store, and the time of the measurement (Unix time)."""

    at: float | None = None
    stores: dict[str, int] = Field(default_factory=dict)


def measured(workspace: Workspace) -> StoreSizes:
    """Return the last measured sizes; empty if they were never measured."""
    with database.reading(workspace.state) as connection:
        rows = connection.execute(select(store_sizes)).all()
    return StoreSizes(at=max((row.at for row in rows), default=None), stores={row.store: row.size for row in rows})


def measure(workspace: Workspace) -> StoreSizes:
    """Measure the sizes and save them.

    Cost: 10 us per file.

    Raises:
        StoreError: The sizes cannot be saved.
    """
    sizes = StoreSizes(at=time.time(), stores={name: _size(workspace.state / name) for name in STORES})
    rows = [{"store": name, "size": size, "at": sizes.at} for name, size in sizes.stores.items()]
    with database.writing(workspace.state) as connection:
        connection.execute(store_sizes.delete())
        connection.execute(store_sizes.insert(), rows)
    return sizes


def _size(folder: Path) -> int:
    total, folders = 0, [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for child in entries:
                if child.is_dir(follow_symlinks=False):
                    folders.append(child.path)
                else:
                    total += _file_size(child)
    return total


def _file_size(child: os.DirEntry[str]) -> int:
    try:
        return child.stat(follow_symlinks=False).st_size
    except OSError:
        return 0  # the file was deleted meanwhile
