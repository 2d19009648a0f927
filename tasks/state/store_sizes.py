"""Sizes of a workspace's stores: the dashboard's server measures them at intervals and saves them for readers.

Walking the files of 10,000 loops takes seconds, so readers do not wait for a measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from models.files import write_text
from tasks.host.workspace import Workspace

FILE = "store-sizes.json"
STORES = ("projects", "mlflow", "prefect", "optuna", "dvc", "cache")


class StoreSizes(BaseModel):
    """Bytes by store, and the time of the measurement (Unix time)."""

    at: float | None = None
    stores: dict[str, int] = Field(default_factory=dict)


def measured(workspace: Workspace) -> StoreSizes:
    """Return the last measured sizes; empty if they were never measured."""
    try:
        return StoreSizes.model_validate(json.loads((workspace.cache / FILE).read_text()))
    except (OSError, ValueError, ValidationError):
        return StoreSizes()


def measure(workspace: Workspace) -> StoreSizes:
    """Measure the sizes and save them.

    Cost: 10 us per file.

    Raises:
        StoreError: The sizes cannot be saved.
    """
    sizes = StoreSizes(at=time.time(), stores={name: _size(workspace.state / name) for name in STORES})
    write_text(workspace.cache / FILE, sizes.model_dump_json())
    return sizes


def _size(folder: Path) -> int:
    total, folders = 0, [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += _file_size(entry)
    return total


def _file_size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0  # the file was deleted meanwhile
