"""Removes from MLflow what `loopline gc` names: versions, logged models, runs, and the bytes of each.

MLflow's client marks runs and logged models as deleted; only `mlflow gc` removes their rows. Without `--experiment-ids`
that command also removes every deleted experiment, and without ids every deleted run or logged model (3.17). So it is
called with ids of ours alone, and only while no experiment is deleted for longer than PURGE_AFTER.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from models.errors import StoreError
from models.serving.registry import UNRECORDED
from tasks.mlflow import artifact_files
from tasks.mlflow.client import client, matches, reaching_store

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

PURGE_AFTER_S = 3600.0
"""What was marked as deleted at least so long ago is removed from MLflow's tables."""
_AGE = "1h"
_GONE = re.compile(r"with ID '?([\w-]+)'? (?:has been permanently deleted|not found)")


class UnrecordedVersion(NamedTuple):
    """A version of MLflow's that no row of ours names: its process was killed, or lost its lease."""

    number: str
    run: str
    created: float


def aliases_of(model: str) -> dict[str, str]:
    """Return the alias of each version of a model that has one.

    Raises:
        StoreError: The tracking store is away, or has no such model.
    """
    from mlflow.exceptions import MlflowException

    with reaching_store():
        try:
            aliases = client().get_registered_model(model).aliases
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            lost = f"MLflow has no registered model {model}: put it back from a copy, or rename it back"
            raise StoreError(lost) from error
    return {str(number): alias for alias, number in aliases.items()}


def unrecorded_versions(model: str) -> Iterator[UnrecordedVersion]:
    """Yield the versions of a model that no row of ours names.

    Raises:
        StoreError: The tracking store is away.
    """
    with reaching_store():
        for version in matches(client().search_model_versions, f"name = '{model}'"):
            if UNRECORDED in version.tags:
                yield UnrecordedVersion(
                    str(version.version), str(version.run_id or ""), version.creation_timestamp / 1000
                )


def drop_version(model: str, number: str) -> str:
    """Delete a version, its logged model and the bytes; return the logged model's id. May be repeated after a kill.

    Raises:
        StoreError: The tracking store is away.
    """
    from mlflow.exceptions import MlflowException

    with reaching_store():
        store = client()
        try:
            version = store.get_model_version(model, number)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return ""
        model_id = logged_model_of(version) or ""
        try:
            if model_id:
                artifact_files.remove(store.get_logged_model(model_id).artifact_location)
                store.delete_logged_model(model_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        store.delete_model_version(model, number)
        return model_id


def logged_model_of(version: ModelVersion) -> str | None:
    """Return the id of the logged model that a version was made of; MLflow's SQL store has it in the source only."""
    kind, _, model_id = (version.source or "").partition(":/")
    return version.model_id or (model_id.lstrip("/") if kind == "models" else None)


def drop_runs(run_ids: Iterable[str]) -> None:
    """Delete runs and their artifacts. May be repeated after a kill.

    Raises:
        StoreError: The tracking store is away.
    """
    with reaching_store():
        store = client()
        for run in _existing(store, run_ids):
            artifact_files.remove(run.info.artifact_uri)
            if run.info.lifecycle_stage != "deleted":
                store.delete_run(run.info.run_id)


def purge(run_ids: Collection[str], model_ids: Collection[str]) -> set[str]:
    """Remove deleted runs and logged models from MLflow's tables by its own command; return the ids that are gone.

    Nothing is removed without ids of both, nor by a server elsewhere, which lets only its own machine do it.

    Raises:
        StoreError: The tracking store is away.
    """
    runs = _deleted(run_ids)
    gone = {*run_ids} - {*runs}
    is_server = os.environ["MLFLOW_TRACKING_URI"].startswith("http")
    if is_server or not runs or not model_ids or _deleted_experiments():
        return gone
    ids = ["--run-ids", ",".join(runs), "--logged-model-ids", ",".join(sorted(model_ids))]
    command = [sys.executable, "-P", "-m", "mlflow", "gc", *ids, "--older-than", _AGE]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    return gone | ({*_GONE.findall(outcome.stdout + outcome.stderr)} & {*run_ids, *model_ids})


def _deleted(run_ids: Iterable[str]) -> list[str]:
    """Return those of the runs that exist and are marked as deleted."""
    with reaching_store():
        runs = _existing(client(), run_ids)
        return [run.info.run_id for run in runs if run.info.lifecycle_stage == "deleted"]


def _existing(store: MlflowClient, run_ids: Iterable[str]) -> Iterator[Run]:
    """Yield the runs that are in MLflow's tables, those that are marked as deleted too."""
    from mlflow.exceptions import MlflowException

    for run_id in run_ids:
        try:
            yield store.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise


def _deleted_experiments() -> bool:
    from mlflow.entities import ViewType

    with reaching_store():
        return bool(client().search_experiments(view_type=ViewType.DELETED_ONLY, max_results=1))
