"""The shares of their peaks that devices reached in this workspace's jobs: the newest ones, in a file of the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pydantic import ValidationError

from models.errors import StoreError
from models.files import read_json, write_json
from models.training.costs.speeds import MeasuredSpeed
from tasks.host.workspace import Workspace

NEWEST = 100
"""Jobs that count: a driver or a library may change what a machine reaches."""


def read_speeds(workspace: Workspace) -> tuple[MeasuredSpeed, ...]:
    """Return what earlier jobs measured, oldest first; nothing if the file is missing or damaged."""
    entries = read_json(workspace.cache / "speeds.json").get("speeds")
    with contextlib.suppress(ValidationError):
        return tuple(map(MeasuredSpeed.model_validate, entries if isinstance(entries, list) else ()))
    return ()


def add_speeds(workspace: Workspace, speeds: Sequence[MeasuredSpeed]) -> None:
    """Add what a job measured. If two jobs end at once one of them may be lost; it is measured again by the next."""
    if not speeds:
        return
    entries = [speed.model_dump() for speed in (*read_speeds(workspace), *speeds)][-NEWEST:]
    with contextlib.suppress(OSError, StoreError):  # full or read-only: a loop does not fail for it
        write_json(workspace.cache / "speeds.json", {"speeds": entries})
