"""Train: the best configuration, on one or many ranks, from the last checkpoint if there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from models.files import write_json, write_text
from models.metrics.metrics import metric_name
from models.nets.catalogue import by_descent, net_name, unused
from models.pipeline.parameters import trained_parameters
from models.pipeline.records import StepRecord
from models.project_spec.blocks import Spec
from models.project_spec.references import short_name
from models.training.checkpoints.finished import take_over
from models.training.ensemble import fit_members, members_of, weights_of
from models.training.families import chosen_net
from models.training.job import JOB_FILE, LONGER, REFIT, EpochReport, TrainingJob, TrainingResult
from models.training.optimisation.course import still_rises
from models.training.search_space import MEMBERS, member_nets, shown, with_params
from tasks.loop.job_uploads import uploaded
from tasks.loop.jobs import job, job_owner, run_here, validation_value
from tasks.loop.loop import Inputs, Loop, Reporter, StepResult
from tasks.loop.origin import begin
from tasks.loop.probe import after_probe
from tasks.mlflow.estimators import estimator_tags
from tasks.prefect.flow_runs import is_cancelled
from tasks.ranks.launcher import Place, train_at
from tasks.ranks.places import find_place
from tasks.state.machine_speeds import add_speeds
from tasks.state.outbox import LOOP_RUN, Outbox
from tasks.steps.search import BEST_FILE, TRIALS

MODEL_FILE = "model.json"
"""The file with the net and arguments of the weights."""
ESTIMATOR = "estimator"
"""The key of the result with the tags of an estimator."""


def fit(loop: Loop) -> tuple[StepRecord, bool]:
    """Train the model that will be judged; its best weights are the step's output, of a refit both fits' weights.

    Raises:
        TrainingError: The loss is NaN, or ranks died more often than `train.max_restarts`; the last good checkpoint
            stays.
        UserCodeError: The user's net or metric raised.
    """

    @after_probe(loop, "train")
    def act(inputs: Inputs, folder: Path) -> StepResult:
        params = json.loads(inputs["search"].file(BEST_FILE).read_text())
        model, train = with_params(loop.spec.model, loop.spec.train, params)
        nets = member_nets(model.arguments.get(MEMBERS, ())) or (net_name(model.net, loop.spec.data.kind),)
        start = begin(loop, inputs, nets)
        place = find_place(loop.workspace, train)
        task = job(loop, inputs["prepare"], folder, model, train, start=start, place=place)
        write_text(folder / JOB_FILE, task.model_dump_json())
        write_json(folder / MODEL_FILE, task.model.model_dump(mode="json"))
        described = estimator_tags(nets, loop.project.folder)
        loop.outbox.tags(LOOP_RUN, described)
        members = members_of(task)
        _note_unused(loop.report, loop.spec, nets)
        trials = inputs["search"].file(BEST_FILE).with_name(TRIALS)
        run = _Training(loop, place, trials, loop.outbox.points(LOOP_RUN))
        with uploaded(loop, folder):
            result = fit_members(task, run, partial(validation_value, loop.rank_pool)) if members else run("", task)
        longer = _longer(task, result)
        if longer:
            loop.report.note(f"train: {longer}")
        add_speeds(loop.workspace, result.speeds)
        started = ", ".join(member.name for member in members if member.job.start is not None)
        begun_with = f"{task.start.label}{f' ({started})' * bool(started)}" if task.start is not None else ""
        summary = {
            **result.model_dump(mode="json"),
            "params": params,
            "begun_with": begun_with,
            ESTIMATOR: described,
            LONGER: longer,
        }
        loop.outbox.metrics(LOOP_RUN, {"num_parameters": result.num_parameters})
        if task.start is not None:
            loop.outbox.tags(LOOP_RUN, {"loopline.start": f"{task.start.label} {task.start.sha256[:16]}"})
        loop.outbox.artifact(LOOP_RUN, folder / "result.json", "training")
        return StepResult([folder / MODEL_FILE, *weights_of(task, result)], summary)

    record, was_done = loop.carry_out("train", act)
    _log(loop.outbox, loop.spec, record)
    return record, was_done


def _log(outbox: Outbox, spec: Spec, record: StepRecord) -> None:
    """Log the settings of the model, and what it reached at the epoch whose weights are kept."""
    trained, params = record.result, record.result["params"]
    settings = trained_parameters(spec, chosen_net(spec, params), shown(params))
    outbox.params(LOOP_RUN, settings)
    epochs, best = trained["epochs"], trained["best_epoch"]
    at_best = epochs[best - 1] if 1 <= best <= len(epochs) else {}
    for prefix, context in (("train_", "training"), ("val_", "validation")):
        if values := {name: value for name, value in at_best.items() if name.startswith(prefix)}:
            outbox.metrics(LOOP_RUN, values, at=record.finished, measured_on=context)


def _longer(task: TrainingJob, result: TrainingResult) -> str:
    """Return which nets may be better after a longer training; empty if none."""
    names = {name: member.epochs for name, member in result.members.items()} or {task.model.net: result.epochs}
    nets = {member.name: member.job.model.net for member in members_of(task)} or {task.model.net: task.model.net}
    path = f"val_{metric_name(task.metric)}"
    learning = by_descent(nets.values())
    rising = {
        name: len(epochs)
        for name, epochs in names.items()
        if nets[name] in learning and still_rises([epoch[path] for epoch in epochs], task.direction)
    }
    listed = ", ".join(f"{short_name(name)} (now {epochs})" for name, epochs in rising.items())
    return f"the last epochs still raised the score of {listed}: a longer train.epochs may help" if listed else ""


def _note_unused(report: Reporter, spec: Spec, nets: Sequence[str]) -> None:
    """Note which keys of `train` that the spec sets none of the nets uses."""
    ignored = [unused(net, spec.train.model_fields_set) for net in nets]
    for name in sorted(set(ignored[0]).intersection(*ignored)):
        report.note(f"train.{name} has no effect for {', '.join(nets)}")


@dataclass(frozen=True)
class _Training:
    """Trains a job of the loop, here or at a place, and tells what comes of it; a member's under its name."""

    loop: Loop
    place: Place | None
    trials: Path
    """The folder with the folders of the search's trials."""
    logged: Mapping[tuple[str, int], float]
    """The values that a killed training of this loop logged, by name and epoch: equal ones are not logged again."""

    def __call__(self, member: str, task: TrainingJob) -> TrainingResult:
        loop, prefix = self.loop, f"{member}." if member else ""
        waited_for = _waited_for(metric_name(task.metric))

        def on_epoch(epoch: EpochReport) -> bool:
            values = {f"{prefix}{key}": value for key, value in epoch.values.items()}
            new = {name: value for name, value in values.items() if self.logged.get((name, epoch.epoch)) != value}
            if new:
                loop.outbox.metrics(LOOP_RUN, new, epoch.epoch)
            line = ", ".join(f"{key} {epoch.values[key]:.4f}" for key in waited_for if key in epoch.values)
            loop.report.progress(f"{prefix}{epoch.stage}", epoch.epoch, epoch.epochs, line)
            return True

        trained = sorted([*self.trials.glob("*"), *self.trials.glob("*/fold-*")])
        if (taken_over := take_over(task.validated, trained)) and task.fold is None:
            for epoch, values in enumerate(taken_over.epochs, 1):
                on_epoch(EpochReport(epoch=epoch, epochs=len(taken_over.epochs), values=values))
        if self.place is None:
            result = run_here(loop.rank_pool, task, on_epoch)
        else:
            result = train_at(self.place, task, job_owner(loop), on_epoch, loop.report.note, is_cancelled=is_cancelled)
        if task.fold is not None:
            return result  # the result of the bag tells of its models
        for name in ("chosen", REFIT):
            facts = result.environment.get(name, {})
            loop.outbox.params(LOOP_RUN, {f"{prefix}{name}.{key}": value for key, value in facts.items()})
        measured = {"best_epoch": result.best_epoch, **_stage_metrics(result)}
        loop.outbox.metrics(LOOP_RUN, {f"{prefix}{key}": value for key, value in measured.items()})
        return result


def _waited_for(metric: str) -> tuple[str, ...]:
    """Return the names of an epoch's values to show, for all stages."""
    return ("val_loss", f"val_{metric}", "val_pretrain_loss", "teacher_val_loss", f"teacher_val_{metric}")


def _stage_metrics(result: TrainingResult) -> dict[str, float]:
    """Return the results of the stages before the training, as metrics."""
    metrics = {"batch": result.before["batch"]["batch"]} if "batch" in result.before else {}
    labels = result.before.get("pseudo_labels", [])
    return metrics | ({"pseudo_labels": labels[-1]["taken"]} if labels else {})
