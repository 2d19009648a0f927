"""Mends a state database that was put back from a copy, `loopline doctor --restored`.

Its leases end, so that no holder of before acts. What is newer than the copy is read from MLflow by the carriers, as at
any look after which MLflow's journal holds more moves than the rows.
"""

from __future__ import annotations

from collections.abc import Collection

from models.errors import GateRefused, StoreError, UsageError
from models.serving.registry import ChampionMove, champion_words
from models.serving.registry_comparison import OWNER
from tasks.host import database
from tasks.host.leases import void_leases
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import lease_of, without_loops
from tasks.mlflow.client import matches, reaching_store
from tasks.mlflow.embedded_store import open_client
from tasks.operations.doctor import Finding
from tasks.state import champion_moves, registered_models, versions
from tasks.state.step_store import highest_epoch
from tasks.state.workspace_id import workspace_id

AGAIN = "run `loopline doctor --restored` again"


def mend(workspace: Workspace) -> list[Finding]:
    """End all leases and read from MLflow what is newer than the copy; say what was done for each project.

    A second call finds nothing to read.

    Raises:
        UsageError: There is no state database.
        StoreError: A loop runs, or the database or the object store cannot be used; nothing was changed.
    """
    if database.is_absent(workspace.state):
        raise UsageError(f"{workspace.state / database.FILE}: is not there, expected the copy: put it back first")
    with without_loops(workspace) as names:
        folders = [workspace.state / "projects" / name for name in names]
        seen = {lease_of(folder): highest_epoch(folder) for folder in folders}
        with database.writing(workspace.state) as connection:
            void_leases(connection, seen)
            registered_models.ask_again(connection)
        ended = "all were ended: who held one records nothing more; their epochs go on above the lost ones"
        return [Finding("leases", "ok", ended), *_read_back(workspace)]


def _read_back(workspace: Workspace) -> list[Finding]:
    models = {*registered_models.projections(workspace.state)}
    try:
        models |= _owned(workspace)
    except StoreError as error:
        left = ", ".join(sorted(models)) or "any project"
        away = f"{error}; the moves and versions newer than the copy were not read for {left}"
        return [Finding("mlflow", "wrong", away, f"start it, then {AGAIN}")]
    return [_project(workspace, model) for model in sorted(models)]


def _owned(workspace: Workspace) -> set[str]:
    """Return the registered models that MLflow names as this workspace's; the copy may lack the newest."""
    condition = f"tags.`{OWNER}` = '{workspace_id(workspace.state)}'"
    with reaching_store():
        return {model.name for model in matches(open_client(workspace).search_registered_models, condition)}


def _project(workspace: Workspace, model: str) -> Finding:
    """Look at a project's model, and say what its rows got."""
    registry = open_registry(workspace, model)
    moves, stored = registry.journal(), versions.versions_of(workspace.state, model)
    try:
        registry.look()
    except GateRefused as error:
        return Finding(model, "warn", str(error))
    if trouble := registry.carrier.trouble:
        return Finding(model, "wrong", trouble, f"then {AGAIN}")
    owner = registered_models.foreign_owner(workspace.state, model)
    if owner:
        return Finding(model, "ok", f"belongs to workspace {owner}, whose champion this one follows")
    count = len(versions.versions_of(workspace.state, model)) - len(stored)
    newest = champion_moves.moves_of(workspace.state, model)
    champion = newest[0].after if newest else None
    read = _moves_read(newest, {move.id for move in moves})
    return Finding(model, "ok", f"read from MLflow: {read}, {_counted(count)}; {champion_words(champion)}")


def _moves_read(moves: Collection[ChampionMove], before: Collection[str]) -> str:
    numbers = sorted(move.number for move in moves if move.id not in before)
    if not numbers:
        return "no move"
    return f"move {numbers[0]}" if len(numbers) == 1 else f"moves {numbers[0]} to {numbers[-1]}"


def _counted(count: int) -> str:
    return "no version" if count <= 0 else "1 version" if count == 1 else f"{count} versions"
