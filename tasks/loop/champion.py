"""The registry of a project's model, as the loop, the commands and the servers use it: each move is sent as an event.

`tasks/mlflow` does not know Prefect; this module connects the two.
"""

from __future__ import annotations

import contextlib
import functools

from models.errors import StoreError
from models.serving.registry import ChampionMove
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.registry import Registry
from tasks.prefect.events import CHAMPION_MOVED, Event, send


def open_registry(workspace: Workspace, model: str) -> Registry:
    """Return the registry of a model; it sends an event for each move of the champion."""
    return Registry(workspace, model, functools.partial(_announce, workspace, model))


def _announce(workspace: Workspace, model: str, move: ChampionMove) -> None:
    moved = f"from version {move.before} to {move.after}" if move.before else f"is version {move.after}"
    text = f"{move.action}: the champion {moved}: {move.reason}"
    with contextlib.suppress(StoreError):  # a full disk loses the event; the champion has moved anyway
        send(workspace, Event(name=CHAMPION_MOVED, project=model, text=text, payload=move.model_dump()))


def champion_stays(model: str) -> str:
    """Return what a loop that promotes nothing leaves as it is, in words; empty if the registry is away."""
    with contextlib.suppress(StoreError):
        return "the champion stays" if registry_reader.aliased(model) else "there is no champion yet"
    return ""
