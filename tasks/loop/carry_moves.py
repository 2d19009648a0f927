"""Keeps MLflow and the rows of champions' moves together, by a short process: MLflow's client takes 195 MB.

`python -m tasks.loop.carry_moves ROOT PROJECT ...` carries what waits and records what was moved in MLflow; it exits
with 1 if MLflow does not follow. The compactor starts it when rows wait, or when MLflow shows another champion.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import GateRefused, LooplineError, StoreError
from models.parent_death import ends_with_parent
from models.serving.registry_comparison import RegistryState, differs
from tasks.host import database, stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow import registry_reader
from tasks.state import registered_models
from tasks.state.workspace_id import workspace_id

ASK_S = 10.0
"""How often MLflow's server is asked for all its models."""
LEAST_PAUSE_S, MOST_PAUSE_S = 5.0, 300.0
"""Pause before another process is started where the last one found that MLflow does not follow; it doubles."""
PAGE = 1000
"""Models in one answer of MLflow's search."""


@dataclass
class MoveCarrier:
    """Starts a process whenever rows wait or MLflow shows another champion; never two at once.

    Args:
        workspace: The workspace.
    """

    workspace: Workspace
    _process: subprocess.Popen[bytes] | None = None
    _asked_at: float = float("-inf")
    _not_before: float = float("-inf")
    _pause_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a process that it started still runs."""
        return self._process is not None and self._process.poll() is None

    def once(self) -> None:
        """Look whether something is to be done, and start the process that does it.

        Raises:
            StoreError: The database cannot be used, or MLflow's server is away.
        """
        now = time.monotonic()
        if self.is_running:
            return
        if self._process:
            failed = self._process.returncode != 0
            self._pause_s = min(max(2 * self._pause_s, LEAST_PAUSE_S), MOST_PAUSE_S) if failed else 0.0
            self._process, self._not_before = None, now + self._pause_s
        if now < self._not_before:
            return
        projects = {*registered_models.waiting(self.workspace.state)}
        if now - self._asked_at >= ASK_S:
            self._asked_at = now
            projects |= {*moved_in_mlflow(self.workspace)}
        if projects:
            self._process = start(self.workspace, projects)


def start(workspace: Workspace, projects: Collection[str]) -> subprocess.Popen[bytes]:
    """Start the process that carries the moves of these projects."""
    command = ends_with_parent(["-m", __name__, str(workspace.root), *sorted(projects)])
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2])


def moved_in_mlflow(workspace: Workspace) -> list[str]:
    """Return the projects of this workspace for which MLflow's server shows another state than the carried one.

    One search for all models, in pages; nothing where MLflow is no server: there a loop or `promote` looks.

    Raises:
        StoreError: The database cannot be used, or MLflow's server is away.
    """
    if not os.environ["MLFLOW_TRACKING_URI"].startswith(("http://", "https://")):
        return []
    own_id = workspace_id(workspace.state)
    carried = registered_models.projections(workspace.state)
    ours = {name: projection for name, projection in carried.items() if projection.owner in ("", own_id)}
    if not ours:
        return []
    models = dict(_models())
    with database.reading(workspace.state) as connection:
        now = database.now(connection)
    return [name for name, projection in ours.items() if name in models and differs(projection, models[name], now)]


def _models() -> Iterator[tuple[str, RegistryState]]:
    uri, token = os.environ["MLFLOW_TRACKING_URI"].rstrip("/"), ""
    while True:
        query = urllib.parse.urlencode({"max_results": PAGE, "page_token": token})
        try:
            with registry_reader.opened(f"{uri}/api/2.0/mlflow/registered-models/search?{query}") as answer:
                page: dict[str, Any] = json.load(answer)
        except (OSError, ValueError) as error:
            raise StoreError(f"the registry at {uri} cannot be searched ({error}): start the server") from error
        for model in page.get("registered_models", []):
            aliases = {pair["alias"]: str(pair["version"]) for pair in model.get("aliases", [])}
            tags = {pair["key"]: pair.get("value", "") for pair in model.get("tags", [])}
            yield model["name"], RegistryState(aliases, tags)
        token = page.get("next_page_token", "")
        if not token:
            return


def main() -> None:
    """Carry the moves of the named projects; print why MLflow does not follow, and exit with 1."""
    root, *projects = sys.argv[1:]
    workspace = Workspace(Path(root))
    stores.configure(workspace)
    troubles: list[str] = []
    for project in projects:
        with contextlib.suppress(GateRefused):  # it belongs to another workspace, which the row says by now
            registry = open_registry(workspace, project)
            registry.look()
            troubles += filter(None, [registry.carrier.trouble])
    for trouble in troubles:
        sys.stderr.write(f"{trouble}\n")
    raise SystemExit(1 if troubles else 0)


if __name__ == "__main__":
    try:
        main()
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
