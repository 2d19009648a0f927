"""Files of a registered version that monitoring needs, downloaded once; and monitoring's metrics in MLflow."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.data.preparation import PREPARATION_FILE, Preparation
from models.errors import StoreError
from models.files import replacing_folder
from models.judge.verdict import Verdict
from models.monitoring.reference import REFERENCE_FILE, Reference
from tasks.host.workspace import Workspace
from tasks.mlflow import artifacts, registry_reader
from tasks.mlflow.delivery import client, reaching_store

VERDICT_FILE = "verdict.json"


@dataclass(frozen=True)
class VersionFacts:
    """The files of a version that monitoring needs; all None if the registry does not have the version."""

    preparation: Preparation | None = None
    reference: Reference | None = None
    verdict: Verdict | None = None


def facts(workspace: Workspace, model: str, version: str, cache: Path) -> VersionFacts:
    """Return the facts of a version, from `cache` if they were downloaded before, else verified from the registry.

    Raises:
        StoreError: The registry is unavailable, or a file is not the one that was registered.
    """
    folder = cache / version
    if not folder.is_dir():
        if registry_reader.numbered(model, version) is None:
            return VersionFacts()
        _fetch(workspace, model, version, folder)
    verdict = folder / VERDICT_FILE
    return VersionFacts(
        Preparation.load(folder),
        Reference.load(folder),
        Verdict.model_validate_json(verdict.read_text()) if verdict.exists() else None,
    )


def _fetch(workspace: Workspace, model: str, version: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=workspace.cache) as place, replacing_folder(folder) as new:
        model_version = artifacts.download_version(workspace, model, version, Path(place))
        for name in (PREPARATION_FILE, REFERENCE_FILE, VERDICT_FILE):
            if (model_version / name).is_file():
                shutil.copyfile(model_version / name, new / name)


def log_metrics(model: str, version: str, batches: Mapping[int, tuple[float, Mapping[str, float]]]) -> None:
    """Log metrics of a version on its run and its model, one batch per step.

    Args:
        model: The registered model.
        version: The version.
        batches: Step -> Unix time and metrics.

    Raises:
        StoreError: The store is away: log them again later.
    """
    with reaching_store():
        from mlflow.entities import Metric

        store = client()
        model_version = store.get_model_version(model, version)
        if not model_version.run_id:
            raise StoreError(f"{model} version {version} has no run to log metrics on")
        linked: dict[str, Any] = (
            {"model_id": model_version.model_id} if getattr(model_version, "model_id", None) else {}
        )
        for step, (at, metrics) in batches.items():
            batch = [Metric(name, value, int(at * 1000), step, **linked) for name, value in metrics.items()]
            store.log_batch(model_version.run_id, metrics=batch)
