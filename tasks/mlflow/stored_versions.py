"""The versions of a model as MLflow holds them, for the table of versions (`tasks/state/versions.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from models.serving.registry import UNRECORDED
from tasks.mlflow.client import matches, reaching_store
from tasks.state.versions import StoredVersion, place_below

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


def read_all(store: MlflowClient, model: str, root: Path) -> list[StoredVersion]:
    """Return the versions of a model, oldest first, without those that no row may name (the tag UNRECORDED).

    Args:
        store: MLflow's client.
        model: The registered model; without one there are no versions.
        root: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The tracking store is away.

    Cost: one call, and one more for each version, which MLflow asks for the place of its files.
    """
    with reaching_store():
        versions = matches(store.search_model_versions, f"name = '{model}'")
        recorded = [version for version in versions if UNRECORDED not in version.tags]
        stored = [stored_version(store, version, root) for version in recorded]
    return sorted(stored, key=lambda version: (version.at, int(version.number)))


def stored_version(store: MlflowClient, version: ModelVersion, root: Path) -> StoredVersion:
    """Return a version of MLflow's as a row of the table."""
    number = str(version.version)
    place = str(store.get_model_version_download_uri(version.name, number) or "")
    return StoredVersion(
        number=number,
        run=str(version.run_id or ""),
        place=place_below(root, place),
        tags={name: value for name, value in version.tags.items() if name != UNRECORDED},
        at=version.creation_timestamp / 1000,
    )
