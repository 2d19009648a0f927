"""What is stored of a version beside its row: the spec, the epochs of its training, and what its columns are worth."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from models.errors import StoreError
from models.files import read_json
from models.judge.column_importance import Importances
from models.pipeline.records import StepRecord
from models.report.version_contents import VersionContents
from models.serving.registry import RegisteredVersion
from tasks.host.workspace import Workspace
from tasks.mlflow import model_cache
from tasks.state.step_records import StepRecords

SPEC_FILE = "spec.json"


def contents_of(workspace: Workspace, project: str, version: RegisteredVersion) -> VersionContents:
    """Return a version with what is stored of it; what cannot be read is left out.

    Args:
        workspace: The workspace.
        project: The name in the spec.
        version: Of the state database.
    """
    version = model_cache.with_verdict(project, version)
    path = file_of(workspace, project, version, SPEC_FILE)
    trained = _record(
        workspace, project, "train", lambda record: record.result.get("weights_sha256") == version.weights
    )
    fits = {}
    if trained and version.weights:
        members = trained.result.get("members") or {"": trained.result}
        fits = {name: member.get("epochs") or [] for name, member in members.items()}
    return VersionContents(version, read_json(path) if path else {}, fits, importances_of(workspace, project, version))


def importances_of(workspace: Workspace, project: str, version: RegisteredVersion) -> Importances | None:
    """Return what the columns are worth to a version, as its judge measured; None if no record has it any more."""
    verdict = version.hashes.get(model_cache.VERDICT_FILE, "")
    judged = _record(workspace, project, "judge", lambda record: verdict in record.outputs.values())
    measured = judged.result.get("importances") if judged else None
    return Importances.model_validate(measured) if measured else None


def file_of(workspace: Workspace, project: str, version: RegisteredVersion, name: str) -> Path | None:
    """Return a file of a version; None if it has none, or only MLflow can read it, or it is not what was registered."""
    with contextlib.suppress(StoreError):
        return model_cache.stored_file(workspace, project, version, name)
    return None


def _record(workspace: Workspace, project: str, step: str, is_it: Callable[[StepRecord], bool]) -> StepRecord | None:
    records = StepRecords(workspace.state / "projects" / project, workspace.root)
    return next((record for record in records.recent(step) if is_it(record)), None)
