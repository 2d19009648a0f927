"""The registry of a project's model, as the loop, the commands and the servers use it: each move is sent as an event.

`tasks/mlflow` does not know Prefect; this module connects the two. It imports them where a model is opened or moved:
`plan` and `status` only ask whether something was never read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Collection
from typing import TYPE_CHECKING

from models.errors import GateRefused, LooplineError, StoreError
from models.serving.registry import ChampionMove, champion_words
from models.serving.registry_comparison import Projection
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.mlflow.embedded_store import settle
from tasks.state import registered_models

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tasks.mlflow.registry import Registry


def open_registry(workspace: Workspace, model: str, actor: str = "") -> Registry:
    """Return the registry of a model; each move is sent as an event. `actor` moves it; default: account and host."""
    from tasks.mlflow.registry import Announcer, Registry

    announcer = Announcer(functools.partial(on_move, model), functools.partial(_deliver, workspace))
    return Registry(workspace, model, announcer, actor, functools.partial(_is_closed, workspace, model))


def _is_closed(workspace: Workspace, model: str) -> bool:
    """Return whether the project's spec says that promotions go through Loopline alone; without a spec, False."""
    for project in sorted(workspace.projects(), key=lambda project: project.folder.name != model):
        with contextlib.suppress(LooplineError):
            spec = project.spec()
            if spec.name == model:
                return spec.judge.promotion == "loopline"
    return False


def hear(workspace: Workspace, model: str) -> None:
    """Record what was moved in MLflow and carry there what waits, if this workspace registered a version.

    A loop begins with it, so that it trains nothing that could not be promoted.

    Raises:
        GateRefused: The model belongs to another workspace.
    """
    if model in registered_models.projections(workspace.state):
        open_registry(workspace, model).look()
    if owner := registry_reader.foreign_owner(workspace.state, model):
        raise GateRefused(registered_models.foreign(model, owner))


def first_look(workspace: Workspace, models: Collection[str] = ()) -> None:
    """Read from MLflow what an older Loopline wrote there, once after an update or a restore, so that rows name it.

    While MLflow is away nothing is read: whoever needs the rows is told so.

    Args:
        workspace: The workspace.
        models: Only these registered models; default: all.

    Cost: one query; MLflow is imported, which takes more than a second, only where there is something to read.
    """
    for model, projection in registered_models.projections(workspace.state).items():
        if projection.looked is not None or (models and model not in models):
            continue
        with contextlib.suppress(StoreError, GateRefused):
            open_registry(workspace, model).look()


def look_after_loop(workspace: Workspace, model: str) -> None:
    """Look at an embedded MLflow after the loop's own changes of its file: later ones are of somebody else.

    So the next command knows by the file's time whether it must import MLflow; see `look_if_moved`.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        with contextlib.suppress(StoreError, GateRefused, sqlite3.Error):
            settle(uri)
            hear(workspace, model)


def look_if_moved(workspace: Workspace, model: str) -> None:
    """Record what a person moved in MLflow, before it is said that there is nothing to do; nothing if MLflow is away.

    Cost: one request to MLflow's server; MLflow is imported only where its alias is another than the one that was
    carried, or where the embedded store has changed since the last look.
    """
    first_look(workspace, [model])
    projection = registered_models.projection_of(workspace.state, model)
    with contextlib.suppress(StoreError, GateRefused):
        if projection.number and _may_differ(model, projection):
            open_registry(workspace, model).look()


def _may_differ(model: str, projection: Projection) -> bool:
    uri = os.environ["MLFLOW_TRACKING_URI"]
    if stores.is_embedded(uri):
        return stores.changed(uri) > (projection.looked or 0.0)
    return registry_reader.registered(model).aliases.get("champion") != projection.alias


def on_move(model: str, connection: Connection, move: ChampionMove) -> None:
    """Store the event of a move, in the transaction of its row."""
    from tasks.prefect.events import CHAMPION_MOVED, RELEASE_CHANGED, Event, store

    if move.before != move.after:
        before = f" (before: version {move.before})" if move.before else ""
        name, summary = CHAMPION_MOVED, f"{champion_words(move.after)}{before}"
    else:
        stays = f"the champion stays version {move.after}" if move.after else champion_words(None)
        name, summary = RELEASE_CHANGED, stays
    text = f"{move.action}: {summary}: {move.reason}"
    store(connection, Event(name=name, project=model, text=text, payload=move.model_dump(mode="json"), at=move.at))


def _deliver(workspace: Workspace) -> None:
    from tasks.prefect.events import deliver

    with contextlib.suppress(StoreError):  # the events are stored, and the compactor delivers them
        deliver(workspace)


def champion_stays(workspace: Workspace, model: str) -> str:
    """Return what a loop that promotes nothing leaves as it is, in words; empty if the registry is away."""
    with contextlib.suppress(StoreError):
        return "the champion stays" if registry_reader.named(workspace.state, model) else "there is no champion yet"
    return ""
