"""A workspace with a project in each state that pages show, made of rows, files and registry entries.

Nothing is trained: what a loop would have recorded is written as it writes it.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.files import sha256, write_json, write_text
from models.judge.verdict import Difference, Estimate, Slice, Verdict
from models.judge.worst_rows import WORST_FILE, WorstExample, WorstExamples
from models.monitoring.report import MonitoringReport
from models.pipeline.records import StepRecord
from models.project_spec.monitor_and_retrain import Monitor
from models.report.backtest import render_backtest
from models.report.card import render_card
from models.report.monitoring import render_monitoring
from models.report.validation import render_validation
from models.serving.registry import FILES
from models.triggers.signal import Decision, Outcome, PastLoop, Signal
from models.validation.data_profile import DataProfile
from tasks.host import processes, stores
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.champion import open_registry
from tasks.loop.history import LoopRecord, record_loop, save_loop
from tasks.loop.loop_pages import data_file, page_of
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.platform.report_pages import PAGES
from tasks.prefect import events
from tasks.state.outbox import LOOP_RUN, Outbox
from tasks.state.step_records import StepRecords
from tests.synthetic_past import made_backtest
from tests.told_facts import findings, window
from tests.unit.models.monitoring.conftest import breach
from tests.unit.models.report.test_card import card, verdict
from tests.unit.models.report.test_validation import BROKEN, MET, report

SPEC = "name: {name}\ndescription: Which {name} will come back\ndata: {{source: data.csv, target: y}}\n"
LOOPS = {"running": "running", "killed": "running", "failed": "failed", "rejected": "rejected"}
"""Projects without a champion, and the state that the record of their last loop has."""
CHAMPIONS = {"champion": None, "refused": "green", "alarmed": "red", "asked": None}
"""Projects with a champion, and the state of their last monitoring run."""
DATA = "5e6f7a8b" * 4 + ".dir"
"""The hash of the data on which every version was trained; `shown_data` makes its page."""
STEPS = ("ingest", "validate-raw", "prepare", "validate-prepared", "version")
REASONS: dict[str, tuple[Outcome, str]] = {
    "failed": ("failed", "train.lr: the loss is NaN in epoch 7: a smaller train.lr"),
    "rejected": ("rejected", "distance: 41,234 rows are below 1"),
}


def workspace_of_states(root: Path, empty_store: Path) -> Workspace:
    """Fill a folder with projects: one never run, `LOOPS`, `CHAMPIONS`, and one whose spec has a mistake."""
    workspace = Workspace(root)
    workspace.make()
    shutil.copytree(empty_store, workspace.state / "mlflow")
    stores.configure(workspace)
    for name in ("never", *LOOPS, *CHAMPIONS):
        write_text(workspace.root / "projects" / name / "project.yaml", SPEC.format(name=name))
        write_text(workspace.root / "projects" / name / "data.csv", "x,y\n1,a\n")
    write_text(workspace.root / "projects" / "broken" / "project.yaml", "data: {sorce: x}\n")
    for name, state in LOOPS.items():
        loop_of_rows(workspace, name, state)
    for name, watched in CHAMPIONS.items():
        loop_of_rows(workspace, name, "finished")
        versions(workspace, name)
        reports(workspace, name, watched)
    request = Signal(id="data-1", kind="new_data", at=time.time(), reason="60 rows came")
    question = Decision(signal=request, at=time.time(), action="ask", reasons=["a person decides"], flow_run="f" * 8)
    decisions.record(workspace.state / "projects" / "asked", question)
    wish = Signal(id="person-1", kind="person", at=time.time(), reason="Ada asked")
    events.send(workspace, events.of_signal("refused", wish))
    return workspace


def loop_of_rows(workspace: Workspace, name: str, state: str) -> None:
    """Record a loop that has searched and trained for some epochs."""
    folder, loop_id, began = workspace.state / "projects" / name, f"{name}-1", time.time() - 300
    process = processes.identity() if name != "killed" else {**processes.identity(), "started": 1.0}
    step = {"rejected": "validate-raw", "finished": ""}.get(state, "train")
    save_loop(folder, LoopRecord(loop_id, state, "i", process=process, began=began, step=step))
    box = Outbox(folder, loop_id)
    box.start_run(LOOP_RUN, loop_id, {})
    if state == "rejected":
        box.log("ingest", "ok")
        box.log("validate-raw", "failed", REASONS["rejected"][1])
        rejected = report(MET, BROKEN)
        write_json(folder / "quarantine" / loop_id / "raw" / "report.json", {**rejected, "stage": "raw"})
    else:
        training(box)
    if state == "failed":
        box.log("train", "failed", "TrainingError")
    if state in REASONS:
        outcome, reason = REASONS[state]
        record_loop(folder, PastLoop(loop_id=loop_id, began=began, ended=began + 200, outcome=outcome, reason=reason))
    if state == "finished":
        box.log("train", "ok")
        box.tags(LOOP_RUN, {"loopline.verdict": verdict().summary, "loopline.version": "3", "loopline.dataset": DATA})
        record_loop(folder, PastLoop(loop_id=loop_id, began=began, ended=began + 200, outcome="kept"))


def training(box: Outbox) -> None:
    """Record a search of two trials and six epochs of the training."""
    for step in STEPS:
        box.log(step, "run")
        box.log(step, "ok")
    box.log("search", "run")
    for number in range(2):
        box.start_run(f"trial-{number}", f"trial {number}", {}, parent=LOOP_RUN)
        box.params(f"trial-{number}", {"train.lr": 0.01 / (number + 1), "model.hidden": [64, 64]})
        for epoch in range(1, 5):
            box.metrics(f"trial-{number}", {"train_loss": 1 / epoch, "val_loss": 1.2 / epoch, "val_auc": 0.6}, epoch)
        box.metrics(f"trial-{number}", {"value": 0.6 + number / 10})
        box.tags(f"trial-{number}", {"loopline.trial_state": "complete"})
        box.end_run(f"trial-{number}", "FINISHED")
    box.log("search", "ok")
    box.log("train", "run")
    for epoch in range(1, 7):
        losses = {"train_loss": math.exp(-epoch / 3), "val_loss": math.exp(-epoch / 4), "val_auc": 0.6 + epoch / 50}
        box.metrics(LOOP_RUN, {**losses, "samples_per_s": 900 + 20 * epoch, "max_memory_mb": 210}, epoch)
        box.log("train", "progress", f"val_auc {losses['val_auc']:.3f}", epoch, 10)


def judged(number: str) -> Verdict:
    """The verdict of a version: the first and second won, the third lost."""
    estimate = Estimate(value=0.74 + int(number) / 200, low=0.73, high=0.77)
    difference = Difference(value=-0.01, low=-0.02, high=0.001) if number == "3" else None
    reasons = ["Kept. 0.755 against 0.76 is not shown to be better."] if number == "3" else ["Promoted. It is better."]
    parts = [
        Slice(column="origin", value=value, num_samples=900, challenger=estimate, champion=estimate)
        for value in ("EWR", "JFK", "a very long name of a slice of the rows")
    ]
    more: dict[str, Any] = {"champion_id": "2" if number == "3" else None, "difference": difference, "slices": parts}
    metrics = {name: {"challenger": 0.7 + int(number) / 100} for name in ("roc_auc", "average_precision", "log_loss")}
    decision = "keep" if number == "3" else "promote"
    return verdict(decision=decision, reasons=reasons, challenger=estimate, metrics=metrics, **more)


def versions(workspace: Workspace, name: str) -> None:
    """Register three versions: 2 is the champion, 3 was refused."""
    registry = open_registry(workspace, name)
    run = client().create_run(experiment_id(client(), workspace, name)).info
    for number in ("1", "2", "3"):
        folder = Path(run.artifact_uri.removeprefix("file://")) / f"m{number}"
        columns = {f"a rather long name of column {place}": float(place) for place in range(9)}
        row = WorstExample(loss=9.5, truth="yes", predicted="no 0.93", values=columns)
        rows = [row.model_copy(update={"row": place}) for place in range(1, 9)]
        worst = WorstExamples(loss="bits", num_samples=5000, examples=rows)
        write_text(folder / WORST_FILE, worst.model_dump_json())
        write_text(folder / "verdict.json", judged(number).model_dump_json())
        spec = {"train": {"lr": 0.1 / int(number)}, "data": {"features": {"drop": [f"c{number}"] * 9}}}
        write_json(folder / "spec.json", spec)
        hashes = {path.name: sha256(path) for path in folder.iterdir()}
        tags = {"metric": "roc_auc=0.7", "loop_id": f"{name}-1", "dataset": DATA, "code": "c0ffee12345678+ab"}
        tags |= {"cost.device_seconds": "36.5", "params": json.dumps({"train.lr": 0.1 / int(number)})}
        named = {f"loopline.{key}": text for key, text in tags.items()}
        registry.create(f"k{number}", folder.as_uri(), run.run_id, None, {**named, FILES: json.dumps(hashes)}, "")
    registry.promote("1", None, reason="First")
    registry.promote("2", "1", reason="Better")
    registry.judge("3", {})


def reports(workspace: Workspace, name: str, watched: str | None) -> None:
    """Write the report pages of the steps, of `champion` by its loop, and those of monitoring for whom is watched."""
    state, of_loop = workspace.state / "projects" / name, name == "champion"
    places = {kind: page_of(state, f"{name}-1", kind) if of_loop else state / path for kind, path in PAGES.items()}
    for stage in ("raw", "prepared"):
        html = render_validation(report(MET, success=True) if stage == "raw" else report(MET, BROKEN))
        write_text(places[f"validation-{stage}"], html)
    links = {kind: places[kind].resolve().as_uri() for kind in ("validation-raw", "validation-prepared")}
    write_text(places["card"], render_card(card(project=name, links=links)))
    write_text(state / "backtest" / "backtest.html", render_backtest(made_backtest()))
    if watched:
        monitored = _monitored(name, watched)
        write_text(state / "monitoring" / "monitoring.html", render_monitoring(monitored, Monitor()))
        write_text(state / "monitoring" / "monitoring.json", monitored.model_dump_json())


def _monitored(name: str, state: str) -> MonitoringReport:
    breaches: list[Any] = [breach()] if state == "red" else []
    windows = [window(number, breaches=breaches, state=state) for number in range(3)]
    return findings(*windows, project=name, state=state)


def shown_data(workspace: Workspace, project: str, data_hash: str, profile: DataProfile) -> None:
    """Record a version of the data of a project, with what it is like."""
    state, loop_id = workspace.state / "projects" / project, f"{project}-1"
    rows: Mapping[str, int] = {"raw_rows": profile.num_raw, **profile.rows}
    result = {"prepared": data_hash, "raw": f"raw{data_hash}", "rows": rows, "schema": [{}] * profile.num_columns}
    record = StepRecord(
        step="version", key=data_hash, parts={}, digest="d", result=result, loop_id=loop_id, finished=time.time()
    )
    StepRecords(state, workspace.root).save(record)
    about = {"data": data_hash, "project": project, "loop_id": loop_id, "source": "data.csv", "created": time.time()}
    write_text(data_file(state, data_hash), profile.model_copy(update=about).model_dump_json())
