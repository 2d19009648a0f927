"""Decides whether a job is finished, and whether two jobs are the same, without torch."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError, TrainingError
from models.files import read_json, sha256, write_bytes, write_json
from models.nets.catalogue import unused
from models.project_spec import own_reads
from models.training.checkpoints.weights import weights_sha256
from models.training.job import RESULT_FILE, TrainingJob, TrainingResult

if TYPE_CHECKING:
    from models.training.checkpoints.state import Progress

TENSORS = ".safetensors"
"""The suffix of weights of which the tensors are hashed, and not the file."""
# These settings may change the bits but not the identity of a job: it can resume with other values.
_FREE = (
    "on", "ranks", "nodes", "threads", "max_restarts", "parallel", "tensor", "stages", "replicas", "pipeline",
    "microbatches", "recompute", "compile", "nccl", "shard_optimiser", "async_checkpoints", "keep_checkpoints",
)  # fmt: skip


def identity(job: TrainingJob) -> dict[str, Any]:
    """Return the identity of a job: all its settings except where and on how many ranks it runs."""
    fields = {"model", "train", "metric", "direction", "sample", "fold", "fold_by", "stage", "pseudo", "refit"}
    whole = job.model_dump(mode="json", include=fields)
    whole["start"] = job.start.sha256 if job.start else ""
    for key in _FREE:
        del whole["train"][key]
    for key in unused(job.model.net, whole["train"]):
        del whole["train"][key]
    for key in {*job.chosen} - {*_FREE}:
        whole["train"][key] = "auto"  # what the machine chose is no setting: the spec still says auto
    return json.loads(json.dumps(whole))  # type: ignore[no-any-return]


def difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return the first three differences of two identities as text; empty if they are equal."""
    actual, expected_values = _flat(got), _flat(expected)
    keys = [
        key for key in sorted(actual.keys() | expected_values.keys()) if actual.get(key) != expected_values.get(key)
    ]
    return ", ".join(f"{key}: got {actual.get(key)!r}, expected {expected_values.get(key)!r}" for key in keys[:3])


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
        weights = job.folder / result.weights
        hash_of = weights_sha256 if weights.suffix == TENSORS else sha256
        whole = hash_of(weights) == result.weights_sha256
    except (OSError, ValueError, StoreError):
        return None
    differs = difference(result.environment.get("job", {}), identity(job))
    if differs:
        raise TrainingError(
            f"{job.folder}: holds the result of another job ({differs}): remove it, or give this job another folder"
        )
    return result if whole else None


def take_over(job: TrainingJob, folders: Iterable[Path]) -> TrainingResult | None:
    """Take over the finished result of an equal job, whose costs are counted there; None if there is none to take.

    Args:
        job: The job, which then is finished.
        folders: The folders of other jobs on the same data.
    """
    if (job.folder / RESULT_FILE).exists():
        return None
    identity_of_job = identity(job)
    for folder in folders:
        if read_json(folder / RESULT_FILE).get("environment", {}).get("job") != identity_of_job:
            continue  # before the weights are read, which may be large
        finished = read_finished(job.model_copy(update={"folder": folder}))
        if finished is not None and not finished.pruned:
            return _taken_over(job, finished, folder)
    return None


def _taken_over(job: TrainingJob, finished: TrainingResult, folder: Path) -> TrainingResult:
    chosen = {**finished.environment.get("chosen", {}), "fit": "that of the search's trial with these settings"}
    changes: dict[str, Any] = {"seconds": 0.0, "costs": None, "speeds": [], "restarts": 0, "resumed_from": []}
    changes["environment"] = {**finished.environment, "chosen": chosen}
    result = finished.model_copy(update=changes)
    own_reads.save(own_reads.load(folder), job.folder / own_reads.file_name("taken-over"))
    write_bytes(job.folder / result.weights, (folder / result.weights).read_bytes())
    write_json(job.folder / RESULT_FILE, result.model_dump(mode="python"))
    return result


def write_result(job: TrainingJob, progress: Progress, environment: dict[str, Any], **facts: Any) -> TrainingResult:
    """Write `result.json`, the last file of a job, and remove its checkpoints.

    Args:
        job: The job.
        progress: What it reached.
        environment: Where and with what it ran; the job's identity and Python's version are added.
        facts: Further fields of the result.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    result = TrainingResult(
        best_epoch=progress.best_epoch,
        value=progress.best_value,
        noise=progress.best_noise,
        log_loss=None if math.isnan(progress.best_log_loss) else progress.best_log_loss,
        epochs=progress.history,
        seconds=progress.seconds,
        threads=job.threads,
        resumed_from=progress.resumed_from,
        environment={"job": identity(job), "python": sys.version.split()[0], **environment},
        **facts,
    )
    write_json(job.folder / RESULT_FILE, result.model_dump(mode="python"))
    shutil.rmtree(job.checkpoint_folder, ignore_errors=True)
    return result


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value}
    return {key: inner for name, part in value.items() for key, inner in _flat(part, f"{prefix}{name}.").items()}
