"""Sizes of the stores of a workspace: measured now and then by the overview page's server, and cached.

Measuring 10,000 loops' files takes seconds, so it is done in the background.
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
    """Bytes by store, and when they were counted (Unix time)."""

    at: float | None = None
    stores: dict[str, int] = Field(default_factory=dict)


def measured(workspace: Workspace) -> StoreSizes:
    """The sizes as they were last measured; empty when they never were."""
    try:
        return StoreSizes.model_validate(json.loads((workspace.cache / FILE).read_text()))
    except (OSError, ValueError, ValidationError):
        return StoreSizes()


def measure(workspace: Workspace) -> StoreSizes:
    """Count them, and remember.

    Cost: 10 us a file.

    Raises:
        StoreError: The sizes cannot be written.
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
        return 0  # it went away as we looked
