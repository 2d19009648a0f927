"""Keeps MLflow and the rows of champions' moves together, by a short process: MLflow's client takes 195 MB.

`python -m tasks.loop.carry_moves ROOT PROJECT ...` carries what waits and records what was moved in MLflow; it exits
with 1 if MLflow does not follow. The compactor starts it when rows wait, or when MLflow shows another champion.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from models.errors import GateRefused
from models.serving.registry_comparison import RegistryState, differs
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.short_process import ShortProcess, carry
from tasks.mlflow import registry_reader
from tasks.mlflow.mlflow_server import awake_server
from tasks.state import registered_models
from tasks.state.workspace_id import workspace_id

ASK_S = 10.0
"""How often MLflow's server is asked for all its models."""
PAGE = 1000
"""Models in one answer of MLflow's search."""


@dataclass
class MoveCarrier:
    """Starts a process whenever rows wait or MLflow shows another champion.

    Args:
        workspace: The workspace.
    """

    workspace: Workspace
    process: ShortProcess = field(init=False)
    _asked_at: float = float("-inf")

    def __post_init__(self) -> None:
        self.process = ShortProcess(self.workspace, __name__)

    def once(self) -> None:
        """Look whether something is to be done, and start the process that does it.

        Raises:
            StoreError: The database cannot be used, or MLflow's server is away.
        """
        if not self.process.is_free:
            return
        projects, now = {*registered_models.waiting(self.workspace.state)}, time.monotonic()
        if now - self._asked_at >= ASK_S:
            self._asked_at = now
            projects |= {*moved_in_mlflow(self.workspace)}
        if projects:
            self.process.start(projects)


def moved_in_mlflow(workspace: Workspace) -> list[str]:
    """Return the projects of this workspace for which MLflow's server shows another state than the carried one.

    One search for all models, in pages; nothing where no server is awake: there a loop or `promote` looks.

    Raises:
        StoreError: The database cannot be used, or MLflow's server is away.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    server = uri if registry_reader.is_server(uri) else awake_server(workspace)
    if not server:
        return []
    own_id = workspace_id(workspace.state)
    carried = registered_models.projections(workspace.state)
    ours = {name: projection for name, projection in carried.items() if projection.owner in ("", own_id)}
    if not ours:
        return []
    models = dict(_models(server))
    registered_models.note_look(workspace.state, ours)
    with database.reading(workspace.state) as connection:
        now = database.now(connection)
    return [name for name, projection in ours.items() if name in models and differs(projection, models[name], now)]


def _models(server: str) -> Iterator[tuple[str, RegistryState]]:
    token = ""
    while True:
        page = (
            registry_reader.rest("registered-models/search", {"max_results": PAGE, "page_token": token}, server) or {}
        )
        for model in page.get("registered_models", []):
            aliases = {pair["alias"]: str(pair["version"]) for pair in model.get("aliases", [])}
            tags = {pair["key"]: pair.get("value", "") for pair in model.get("tags", [])}
            yield model["name"], RegistryState(aliases, tags)
        token = page.get("next_page_token", "")
        if not token:
            return


def _carry(workspace: Workspace, projects: list[str]) -> list[str]:
    """Carry the moves of the projects; return why MLflow does not follow."""
    troubles: list[str] = []
    for project in projects:
        with contextlib.suppress(GateRefused):  # it belongs to another workspace, which the row says by now
            registry = open_registry(workspace, project)
            registry.look()
            troubles += filter(None, [registry.carrier.trouble])
    return troubles


if __name__ == "__main__":
    carry(_carry)
