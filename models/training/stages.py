"""The stages before a training (a batch size, pretraining, teachers that label rows for the student), and the refit.

Pretraining, each teacher and both fits of a refitted model are separate jobs in subfolders, with their own checkpoints
and results. So a run that was killed at any moment, also between two stages, resumes as usual and ends with the same
bits.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from models.distributed.world import World
from models.files import write_bytes, write_json
from models.project_spec.methods import Augment
from models.training.auto_batch import find_batch
from models.training.batches.pseudo import TAKEN, give_labels
from models.training.checkpoints.finished import identity
from models.training.costs.summary import Costs, total
from models.training.job import (
    REFIT,
    RESULT_FILE,
    WEIGHTS_FILE,
    EpochReport,
    RefitSettings,
    TrainingJob,
    TrainingResult,
)
from models.training.loop import Report
from models.training.optimisation.fine_tuning import origin_of
from models.training.optimisation.pretrain import LOSS

Run = Callable[[TrainingJob, Report, World], TrainingResult]
Before = dict[str, Any]

BATCH_FILE = "batch.json"


def make_ready(job: TrainingJob, world: World, report: Report, run: Run) -> tuple[TrainingJob, Before]:
    """Run all stages before the job's own training; return the job to train and the stages' results.

    Every rank must call it.

    Args:
        job: The original job.
        world: The ranks.
        report: Called with the epochs of all stages; its return value counts only in the last stage.
        run: Runs the job of one stage, or returns its stored result.

    Raises:
        LooplineError: An error of a stage.
    """
    if job.stage != "train":
        return job, {}
    before: Before = {}
    if job.train.batch == 0:
        before["batch"] = _batch(job, world)
        job = _with(job, batch=before["batch"]["batch"])
    if job.start is None and job.train.pretrain is None:
        job = _with(job, start=None)  # no initial weights: no layers to freeze or to slow down
    if job.train.pretrain is not None:
        stage = _pretraining(job)
        run(stage, _with_prefix(report, "pretrain"), world)
        job = _with(job, pretrain=None).model_copy(
            update={"start": origin_of(stage.folder / WEIGHTS_FILE, "the pretrained net")}
        )
    if job.train.pseudo_labels is not None:
        before["pseudo_labels"] = []
        job = _taught(job, world, report, run, before["pseudo_labels"])
    return job, before


def _with(job: TrainingJob, **train: Any) -> TrainingJob:
    return job.model_copy(update={"train": job.train.model_copy(update=train)})


def _pretraining(job: TrainingJob) -> TrainingJob:
    pretrain = job.train.pretrain
    assert pretrain is not None
    changed = {"epochs": pretrain.epochs, "lr": pretrain.lr or job.train.lr, "augment": Augment(), "patience": None}
    changed |= {"start": None, "pseudo_labels": None, "recent": None}
    stage = {"stage": "pretrain", "folder": job.folder / "pretrain", "direction": "minimize"}
    return _with(job, **changed).model_copy(update=stage)


def _taught(job: TrainingJob, world: World, report: Report, run: Run, history: list[dict[str, int]]) -> TrainingJob:
    """Train the teachers, each on the labels of the one before, and return the student's job with the last labels."""
    pseudo_labels = job.train.pseudo_labels
    assert pseudo_labels is not None
    student = job = _with(job, pseudo_labels=None)
    for index in range(pseudo_labels.rounds):
        stage = {"stage": "teacher", "folder": job.folder / f"teacher-{index + 1}"}
        teacher = student.model_copy(update=stage)
        run(teacher, _with_prefix(report, f"teacher-{index + 1}"), world)
        with world.excused():
            labels = give_labels(teacher, pseudo_labels.confidence, world)
        history.append(labels.counts)
        changes = {"tensors": {**job.tensors, TAKEN: labels.path}, "pseudo": labels.sha256}
        student = job.model_copy(update=changes) if labels.counts["taken"] else job
    return student


def _batch(job: TrainingJob, world: World) -> dict[str, int]:
    """Return the batch size that rank 0 measured; the job's folder stores it, so that a rerun uses the same."""
    path = job.folder / BATCH_FILE
    if world.is_first and not path.exists():
        with world.excused():
            write_json(path, find_batch(job, world))
    world.gather(None)
    measured: dict[str, int] = json.loads(path.read_text())
    return measured


def _with_prefix(report: Report, stage: str) -> Report:
    """Return a report function that passes on the epochs of a stage with its values renamed."""
    prefix = stage.partition("-")[0]

    def name(key: str) -> str:
        if prefix == "pretrain":
            return {"train_loss": LOSS, f"val_{LOSS}": f"val_{LOSS}"}.get(key, f"pretrain_{key}")
        return f"{prefix}_{key}"

    def hear(epoch: EpochReport) -> bool:
        values = {name(key): value for key, value in epoch.values.items()}
        report(epoch.model_copy(update={"values": values, "stage": stage}))
        return True

    return hear


def refit(job: TrainingJob, report: Report, run: Run) -> TrainingResult:
    """Fit on the training rows, then on the validation rows too, with the settings that validation chose.

    The weights in the job's folder are the second fit's. All figures of validation are the first fit's, whose folder
    stays: calibration and decision threshold are learnt from its predictions (`TrainingJob.validated`).

    Args:
        job: The job.
        report: Called with the epochs of both fits; its return value counts only in the first.
        run: Runs the job of one fit, or returns its stored result.
    """
    alone = World()
    first = run(job.validated, report, alone)
    again = _refit_job(job, first)
    second = run(again, _without_validation(report), alone)
    write_bytes(job.folder / second.weights, (again.folder / second.weights).read_bytes())
    assert again.refit is not None
    used = again.refit.model_dump(exclude_none=True) | {"examples": second.environment["train_examples"]}
    result = first.model_copy(
        update={
            "weights_sha256": second.weights_sha256,
            "num_parameters": second.num_parameters,
            "seconds": first.seconds + second.seconds,
            "resumed_from": [*first.resumed_from, *second.resumed_from],
            "costs": _both(first.costs, second.costs),
            "environment": {**first.environment, "job": identity(job), REFIT: used},
        }
    )
    write_json(job.folder / RESULT_FILE, result.model_dump(mode="python"))
    shutil.rmtree(again.folder, ignore_errors=True)
    return result


def _both(first: Costs | None, second: Costs | None) -> Costs:
    """Return the costs of both fits, with the rate of the first."""
    return total([first, second]).model_copy(update={"samples_per_s": first and first.samples_per_s})


def _refit_job(job: TrainingJob, first: TrainingResult) -> TrainingJob:
    """Return the job of the second fit: trees take as many rounds, linear models the penalty that validation chose."""
    settings = RefitSettings(**{name: first.environment.get(name) for name in RefitSettings.model_fields})
    chosen = settings.model_dump(include={"rounds", "l2"}, exclude_none=True)
    arguments = {**job.model.arguments, **chosen}
    changed = {"folder": job.folder / REFIT, "model": job.model.model_copy(update={"arguments": arguments})}
    return _with(job, refit=False, patience=None).model_copy(update={**changed, "refit": settings})


def _without_validation(report: Report) -> Report:
    """Return a report function that passes on the training loss of a refit; its rows of validation are no test."""

    def hear(epoch: EpochReport) -> bool:
        values = {"refit_train_loss": epoch.values["train_loss"]}
        report(epoch.model_copy(update={"values": values, "stage": REFIT}))
        return True

    return hear
