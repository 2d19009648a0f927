"""The registry of a project's model, as the loop, the commands and the servers use it: each move is sent as an event.

`tasks/mlflow` knows nothing of Prefect; here the two meet.
"""

from __future__ import annotations

import contextlib
import functools

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.mlflow.registry import PromotionEntry, Registry
from tasks.prefect.events import CHAMPION_MOVED, Event, send


def open_registry(workspace: Workspace, model: str) -> Registry:
    """Open the registry of a model; each move of its champion is sent as an event."""
    return Registry(workspace, model, functools.partial(_announce, workspace, model))


def _announce(workspace: Workspace, model: str, entry: PromotionEntry) -> None:
    moved = f"from version {entry.before} to {entry.after}" if entry.before else f"is version {entry.after}"
    text = f"{entry.action}: the champion {moved}: {entry.reason}"
    with contextlib.suppress(StoreError):  # a full disk: the champion has moved all the same
        send(workspace, Event(name=CHAMPION_MOVED, project=model, text=text, payload=entry.model_dump()))
