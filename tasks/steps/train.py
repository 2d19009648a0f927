"""Train: the best configuration, on one or many ranks, from the last checkpoint if there is one."""

from __future__ import annotations

import json
from pathlib import Path

from models.files import write_json
from models.metrics.metrics import metric_name
from models.nets.catalogue import net_name, unused
from models.pipeline.records import StepRecord
from models.training.job import JOB_FILE, REFIT, EpochReport, TrainingResult
from models.training.search_space import with_params
from tasks.loop.job_uploads import uploaded
from tasks.loop.jobs import job
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.loop.origin import begin
from tasks.prefect.flow_runs import is_cancelled
from tasks.ranks.launcher import train_at
from tasks.ranks.places import find_place
from tasks.state.machine_speeds import add_speeds
from tasks.state.outbox import LOOP_RUN

MODEL_FILE = "model.json"
"""The file with the net and arguments of the weights."""


def fit(loop: Loop) -> tuple[StepRecord, bool]:
    """Train the model that will be judged; its best weights are the step's output, of a refit both fits' weights.

    Raises:
        TrainingError: The loss is NaN, or ranks died more often than `train.max_restarts`; the last good checkpoint
            stays.
        UserCodeError: The user's net or metric raised.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        params = json.loads(inputs["search"].file("best.json").read_text())
        start = begin(loop, inputs)
        model, train = with_params(loop.spec.model, loop.spec.train, params)
        model = start.arguments(model)
        place = find_place(loop.workspace, train)
        task = job(loop, inputs["prepare"], folder, model, train, checkpoints=True, start=start.origin, place=place)
        (folder / JOB_FILE).write_text(task.model_dump_json())
        write_json(folder / MODEL_FILE, model.model_dump(mode="json"))
        waited_for = _waited_for(metric_name(task.metric))
        loop.outbox.params(LOOP_RUN, {f"best.{key}": value for key, value in params.items()})

        def on_epoch(epoch: EpochReport) -> bool:
            loop.outbox.metrics(LOOP_RUN, epoch.values, epoch.epoch)
            shown = ", ".join(f"{key} {epoch.values[key]:.4f}" for key in waited_for if key in epoch.values)
            loop.report.progress(epoch.stage, epoch.epoch, epoch.epochs, shown)
            return True

        for name in unused(net_name(model.net, loop.spec.data.kind), loop.spec.train.model_fields_set):
            loop.report.note(f"train.{name} has no effect for {model.net}")
        with uploaded(loop, folder):
            if place is None:
                result = loop.rank_pool.run(task, on_epoch)
            else:
                result = train_at(place, task, on_epoch, loop.report.note, is_cancelled=is_cancelled)
        add_speeds(loop.workspace, result.speeds)
        summary = {**result.model_dump(mode="json"), "params": params}
        chosen = result.environment.get("chosen", {})
        loop.outbox.params(LOOP_RUN, {f"chosen.{key}": why for key, why in chosen.items()})
        size = {"best_epoch": result.best_epoch, "num_parameters": result.num_parameters}
        loop.outbox.metrics(LOOP_RUN, {**size, **_stage_metrics(result)})
        refit = result.environment.get(REFIT, {})
        loop.outbox.params(LOOP_RUN, {f"{REFIT}.{key}": value for key, value in refit.items()})
        if task.start is not None:
            loop.outbox.tags(LOOP_RUN, {"loopline.start": f"{task.start.label} {task.start.sha256[:16]}"})
        loop.outbox.artifact(LOOP_RUN, folder / "result.json", "training")
        validated = [task.validated.folder / result.weights] * task.is_refitted
        return StepResult([folder / result.weights, folder / MODEL_FILE, *validated], summary)

    return loop.carry_out("train", act)


def _waited_for(metric: str) -> tuple[str, ...]:
    """Return the names of an epoch's values to show, for all stages."""
    return ("val_loss", f"val_{metric}", "val_pretrain_loss", "teacher_val_loss", f"teacher_val_{metric}")


def _stage_metrics(result: TrainingResult) -> dict[str, float]:
    """Return the results of the stages before the training, as metrics."""
    metrics = {"batch": result.before["batch"]["batch"]} if "batch" in result.before else {}
    labels = result.before.get("pseudo_labels", [])
    return metrics | ({"pseudo_labels": labels[-1]["taken"]} if labels else {})
