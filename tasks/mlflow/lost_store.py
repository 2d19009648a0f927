"""Refuses a tracking store that was lost or emptied: a loop that went on would register version 1 again."""

from __future__ import annotations

import os
from collections.abc import Sequence

from models.errors import StoreError
from tasks.host import stores
from tasks.host.store_addresses import without_password
from tasks.host.workspace import Workspace
from tasks.mlflow import registry_reader
from tasks.state.step_records import newest_records, recorded_projects


def refuse_lost(workspace: Workspace, model: str) -> None:
    """Refuse a store that has no data of a project although the project's records name a version in that store.

    A person who only deletes a version or the registered model in MLflow leaves the project's experiment in the store.

    Args:
        workspace: The workspace.
        model: The registered model, which has the project's name.

    Raises:
        StoreError: The store was lost, or the file of the embedded store cannot be read.
    """
    uri = os.environ["MLFLOW_TRACKING_URI"]
    version = _registered(workspace, uri, [model]).get(model)
    if version is None:
        return
    try:
        if registry_reader.has_experiment(model) or registry_reader.numbered(model, version):
            return
    except StoreError:
        if stores.is_embedded(uri):
            raise
        return  # the store is away: a loop continues without it as far as possible
    raise _lost(uri, model, version)


def refuse_lost_file(workspace: Workspace, uri: str) -> None:
    """Refuse a file of the embedded store that is missing or empty although versions were registered in it.

    Raises:
        StoreError: They were.
    """
    if not stores.is_embedded(uri) or stores.has_file(uri):
        return
    for model, version in _registered(workspace, uri, recorded_projects(workspace.state)).items():
        raise _lost(uri, model, version)


def _registered(workspace: Workspace, uri: str, projects: Sequence[str]) -> dict[str, str]:
    """Return the version that each of the projects registered last, of those that did so in this store."""
    store = stores.name_of(workspace, uri)
    results = {name: rows[0].result for name, rows in newest_records(workspace.state, projects, "register", 1).items()}
    return {name: str(result["version"]) for name, result in results.items() if result.get("store") == store}


def _lost(uri: str, model: str, version: str) -> StoreError:
    where = stores.database_file(uri) if stores.is_embedded(uri) else without_password(uri)
    cure = f"delete from step_records where project = '{model}' and step = 'register'"  # noqa: S608 - for a person
    return StoreError(
        f"{where}: holds nothing of {model}, whose version {version} was registered there: the store was lost or "
        f"emptied. Put it back from a copy; or, to begin anew with version 1, remove its record from the state "
        f"database: {cure}"
    )
