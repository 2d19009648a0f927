"""Decides whether a job is finished, and whether two jobs are the same, without torch."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from models.errors import StoreError, TrainingError
from models.files import write_json
from models.training.checkpoints.weights import weights_sha256
from models.training.job import RESULT_FILE, TREES_FILE, TrainingJob, TrainingResult

# These settings may change the bits but not the identity of a job: it can resume with other values.
_FREE = (
    "on", "ranks", "nodes", "threads", "max_restarts", "parallel", "tensor", "stages", "replicas", "pipeline",
    "microbatches", "recompute", "compile", "shard_optimiser", "async_checkpoints", "keep_checkpoints",
)  # fmt: skip


def identity(job: TrainingJob) -> dict[str, Any]:
    """Return the identity of a job: all its settings except where and on how many ranks it runs."""
    fields = {"model", "train", "metric", "direction", "sample", "fold", "fold_by", "stage", "pseudo"}
    whole = job.model_dump(mode="json", include=fields)
    whole["start"] = job.start.sha256 if job.start else ""
    for key in _FREE:
        del whole["train"][key]
    return json.loads(json.dumps(whole))  # type: ignore[no-any-return]


def difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return the first three differences of two identities as text; empty if they are equal."""
    actual, wanted = _flat(got), _flat(expected)
    keys = [key for key in sorted(actual.keys() | wanted.keys()) if actual.get(key) != wanted.get(key)]
    return ", ".join(f"{key}: got {actual.get(key)!r}, expected {wanted.get(key)!r}" for key in keys[:3])


def read_finished(job: TrainingJob) -> TrainingResult | None:
    """Return the result of a finished job whose weights are as they were written; None if it must run.

    Raises:
        TrainingError: The folder holds the result of another job.
    """
    path = job.folder / RESULT_FILE
    if not path.exists():
        return None
    try:
        result = TrainingResult.model_validate(json.loads(path.read_text()))
        whole = _sha256(job, result) == result.weights_sha256
    except (OSError, ValueError, StoreError):
        return None
    differs = difference(result.environment.get("job", {}), identity(job))
    if differs:
        raise TrainingError(
            f"{job.folder}: holds the result of another job ({differs}): remove it, or give this job another folder"
        )
    return result if whole else None


def write_result(job: TrainingJob, result: TrainingResult) -> TrainingResult:
    """Write `result.json`, the last file of a job.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    write_json(job.folder / RESULT_FILE, result.model_dump(mode="python"))
    return result


def _sha256(job: TrainingJob, result: TrainingResult) -> str:
    path = job.folder / result.weights
    return hashlib.sha256(path.read_bytes()).hexdigest() if result.weights == TREES_FILE else weights_sha256(path)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value}
    return {key: inner for name, part in value.items() for key, inner in _flat(part, f"{prefix}{name}.").items()}
