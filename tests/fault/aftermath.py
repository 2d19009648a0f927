"""What must hold of every store after a kill and the run that follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna

from models.pipeline.steps import STEPS
from models.training.costs.summary import MEASURED
from tasks.host.workspace import Workspace
from tasks.state.outbox import LOOP_RUN
from tasks.tools.optuna_study import KILLED, REASON, storage
from tests.running import Loopline, assert_gone, assert_unlocked, flow_runs

LOOK_S = 0.02


def assert_survives(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """No step that was done is done again: its record is the one of then."""
    assert {key: after.get(key, {}).get("finished") for key in before} == {
        key: record["finished"] for key, record in before.items()
    }


def assert_put_right(home: Loopline, name: str, api: str) -> None:
    """Nothing is left running, locked, half-written or counted twice, in any store."""
    assert_gone(home.home)
    assert_unlocked(home.home, name)
    assert set(home.runs().values()) <= {"FINISHED", "FAILED", "KILLED"}
    assert running_trials(home) == []
    assert set(flow_runs(api, name).values()) <= {"COMPLETED", "CRASHED", "FAILED"}
    assert [str(path) for path in half_written(home.home)] == []
    assert [path.name for path in home.state(name).glob("work/*/*/*") if path.is_dir() and path.name == "model"] == []
    status = home.dvc("status").ok().out
    assert "up to date" in status, status


def assert_as_if_whole(home: Loopline, name: str, whole: Loopline) -> None:
    """The end is that of the run that nobody interrupted."""
    records = list(home.records(name).values())
    assert sorted(record["step"] for record in records) == sorted(step.name for step in STEPS)
    assert home.versions(name) == [1]
    assert home.aliases(name) == {"champion": 1}
    assert [key for key in model_tags(home, name) if key.startswith("loopline.journal.")] == ["loopline.journal.000001"]
    theirs, ours = whole.tags("whole", 1), home.tags(name, 1)
    assert ours["loopline.weights_sha256"] == theirs["loopline.weights_sha256"]
    assert epochs(home, name) == epochs(whole, "whole")
    points = [*logged_points(home, name)]
    assert len(points) == len({*points}), "an epoch that was trained again with the same values is logged once"
    for key in ("params", "trials", "complete", "pruned", "failed", "best_value"):
        assert home.record(name, "search")["result"][key] == whole.record("whole", "search")["result"][key]
    assert home.book(name)["state"] == "finished"
    (loop_id,) = {record["loop_id"] for record in records}  # a loop that was cut short is gone on with
    assert home.runs()[loop_id] == "FINISHED"


def epochs(home: Loopline, name: str) -> list[dict[str, float]]:
    """What each epoch of the training gave, but for what it cost."""
    told = home.record(name, "train")["result"]["epochs"]
    return [{key: value for key, value in epoch.items() if key not in MEASURED} for epoch in told]


def logged_points(home: Loopline, name: str) -> Iterator[tuple[str, int, float]]:
    """Name, epoch and value of each loss and metric of the training that the outbox has."""
    for line in home.outbox(name):
        if line["op"] == "metrics" and line["run"] == LOOP_RUN and line["step"]:
            values = line["metrics"].items()
            yield from ((key, line["step"], value) for key, value in values if key.startswith(("train_", "val_")))


def epochs_told(home: Loopline, name: str, run: str) -> int:
    """How many epochs of a run the loop has noted down; whoever asks again and again lets the loop work between."""
    time.sleep(LOOK_S)
    told = 0
    for line in home.outbox(name):
        told += line["op"] == "metrics" and line["run"] == run and "val_loss" in line["metrics"]
    return told


def studies(home: Loopline) -> list[optuna.Study]:
    stored = storage(Workspace(home.home))
    return [optuna.load_study(study_name=study.study_name, storage=stored) for study in stored.get_all_studies()]


def running_trials(home: Loopline) -> list[int]:
    return [
        trial.number for study in studies(home) for trial in study.trials if trial.state.name in ("RUNNING", "WAITING")
    ]


def counted_trials(home: Loopline) -> int:
    """Trials that a kill did not cut short."""
    return sum(trial.user_attrs.get(REASON) != KILLED for study in studies(home) for trial in study.trials)


def half_written(home: Path) -> list[Path]:
    return [path for path in home.rglob("*.tmp") if "prefect" not in path.parts]


def model_tags(home: Loopline, name: str) -> dict[str, str]:
    return dict(home.query("select key, value from registered_model_tags where name = ?", name))
