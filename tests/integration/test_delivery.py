"""The outbox reaches a real MLflow: once, in order, whatever was lost or away on the way."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mlflow import MlflowClient

from models.errors import StoreError
from tasks.host import database
from tasks.host.tables import deliveries
from tasks.host.workspace import Workspace
from tasks.loop import carry_runs
from tasks.loop.history import LoopRecord, save_loop
from tasks.mlflow.client import client
from tasks.mlflow.delivery import MlflowExporter, experiment_id
from tasks.mlflow.embedded_store import open_client
from tasks.state.outbox import Outbox, delivered, set_delivered, undelivered, waiting_loops
from tests.wide import wide

LOOP = "tiny-20260101-000000-abcd"


def fill(workspace: Workspace) -> Outbox:
    """A loop with one trial, as a run leaves it."""
    state = workspace.state / "projects" / "tiny"
    figure = state / "card.html"
    figure.parent.mkdir(parents=True, exist_ok=True)
    figure.write_text("<html></html>")
    box = outbox(workspace)
    box.start_run("loop", LOOP, {"loopline.loop_id": LOOP})
    box.params("loop", {"train.lr": 0.1, **{f"p{number}": number for number in range(150)}})
    box.log("search", "run")  # for the loop's page alone, as is the request to stop
    box.request_stop("Ada", is_signal=True)
    box.start_run("trial-0", f"{LOOP}/trial-0", {}, parent="loop")
    for epoch in range(1, 31):
        box.metrics("trial-0", {"val_loss": 1 / epoch, "val_accuracy": 0.5}, epoch)
    box.end_run("trial-0", "FINISHED")
    box.metrics("loop", {"val_accuracy": 0.9}, 1)
    for split, context in (("train", "training"), ("test", "test")):
        dataset = {"name": f"tiny-{split}", "digest": "abc", "source_type": "dvc"}
        box.dataset("loop", {**dataset, "source": {"uri": "a.csv"}, "schema": {}, "profile": {"rows": 3}}, context)
    box.metrics("loop", {"test_accuracy": 0.8}, measured_on="test")
    box.model("loop", logged_model(workspace))
    box.text("loop", "spec.json", "{}")
    box.note("loop", "a first one")
    box.note("loop", "see the [card](artifact:card.html)")
    box.artifact("loop", figure, "pages")
    box.artifact("loop", state / "deleted.png", "pages")
    box.tags("loop", {"loopline.decision": "promote"})
    box.end_run("loop", "FINISHED")
    return box


def logged_model(workspace: Workspace) -> str:
    """A model as `register` logs it: before its run's lines name it."""
    store = open_client(workspace)
    experiment = experiment_id(store, workspace, "tiny")
    return str(store.create_logged_model(experiment, name="tiny", model_type="onnx").model_id)


def outbox(workspace: Workspace) -> Outbox:
    return Outbox(workspace.state / "projects" / "tiny", LOOP)


def forget_progress(workspace: Workspace) -> None:
    with database.writing(workspace.state) as connection:
        connection.execute(deliveries.delete())


def deliver(workspace: Workspace) -> MlflowExporter:
    made = MlflowExporter(workspace, "tiny", LOOP)
    made.deliver()
    return made


def runs(store: MlflowClient) -> list[Any]:
    experiment = store.get_experiment_by_name("tiny")
    assert experiment is not None
    return list(store.search_runs([experiment.experiment_id]))


def the(store: MlflowClient, name: str) -> Any:
    (run,) = [run for run in runs(store) if run.info.run_name == name]
    return run


def check_all(workspace: Workspace) -> None:
    """Everything that `fill` said is there, once."""
    store = client()
    assert len(runs(store)) == 2
    loop, trial = the(store, LOOP), the(store, f"{LOOP}/trial-0")
    assert loop.data.params["train.lr"] == "0.1"
    assert len(loop.data.params) == 151
    assert loop.data.tags["loopline.decision"] == "promote"
    assert loop.data.metrics == {"curves/val_accuracy": 0.9, "test_accuracy": 0.8}
    assert len(store.get_metric_history(loop.info.run_id, "test_accuracy")) == 1
    place = f"#/experiments/{loop.info.experiment_id}/runs/{loop.info.run_id}/artifacts/card.html"
    assert loop.data.tags["mlflow.note.content"] == f"see the [card]({place})"
    (output,) = loop.outputs.model_outputs
    (measured,) = store.get_logged_model(output.model_id).metrics
    assert (measured.key, measured.value, measured.dataset_name) == ("test_accuracy", 0.8, "tiny-test")
    assert trial.data.tags["mlflow.parentRunId"] == loop.info.run_id
    assert [point.step for point in store.get_metric_history(trial.info.run_id, "curves/val_loss")] == [*range(1, 31)]
    assert {run.info.status for run in (loop, trial)} == {"FINISHED"}
    datasets = {part.dataset.name: part.dataset for part in loop.inputs.dataset_inputs}
    assert sorted(datasets) == ["tiny-test", "tiny-train"]
    assert (datasets["tiny-train"].digest, json.loads(datasets["tiny-train"].profile)) == ("abc", {"rows": 3})
    assert [file.path for file in store.list_artifacts(loop.info.run_id, "pages")] == ["pages/card.html"]


def test_all_of_a_loop_is_delivered(tracked: Workspace) -> None:
    fill(tracked)
    made = deliver(tracked)
    assert undelivered(tracked.state / "projects" / "tiny") == []
    assert made.run_id("loop") == the(client(), LOOP).info.run_id
    check_all(tracked)


def test_delivered_twice_is_there_once(tracked: Workspace) -> None:
    fill(tracked)
    for _ in range(2):
        deliver(tracked)
    check_all(tracked)


def test_delivered_by_several_at_once_is_there_once(tracked: Workspace) -> None:
    """Two reapers on two machines, or the compactor beside `loopline reap`."""
    fill(tracked)
    client()  # its imports are no part of the race
    with ThreadPoolExecutor(4) as pool:
        for delivery in [pool.submit(deliver, tracked) for _ in range(4)]:
            delivery.result()
    check_all(tracked)


def test_a_short_process_delivers_what_an_ended_loop_left(tracked: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry_runs, "ASK_S", 0.1)
    fill(tracked)
    state = tracked.state / "projects" / "tiny"
    save_loop(state, LoopRecord(LOOP, "running"))
    carrier = carry_runs.RunCarrier(tracked)
    for _ in range(3):
        carrier.once()
        time.sleep(0.1)
    assert not carrier.process.is_running, "a running loop delivers its own lines"
    save_loop(state, LoopRecord(LOOP, "killed"))
    assert [*waiting_loops(tracked.state)] == [LOOP]
    deadline = time.monotonic() + 60
    while (waiting_loops(tracked.state) or carrier.process.is_running) and time.monotonic() < deadline:
        carrier.once()
        time.sleep(0.1)
    check_all(tracked)


def test_lost_progress_changes_nothing(tracked: Workspace) -> None:
    fill(tracked)
    for _ in range(2):
        deliver(tracked)
        forget_progress(tracked)
    check_all(tracked)


def test_a_loop_taken_up_again_goes_on_in_the_same_run(tracked: Workspace) -> None:
    fill(tracked)
    deliver(tracked)
    before = the(client(), LOOP).info.run_id
    box = outbox(tracked)
    box.start_run("loop", LOOP, {})
    box.params("loop", {"train.lr": 0.1})
    deliver(tracked)
    assert the(client(), LOOP).info.status == "RUNNING"
    box.end_run("loop", "KILLED")
    deliver(tracked)
    after = the(client(), LOOP)
    assert (after.info.run_id, after.info.status) == (before, "KILLED")


def test_a_run_that_a_person_deleted_is_restored_when_its_loop_goes_on(tracked: Workspace) -> None:
    fill(tracked)
    before = deliver(tracked).run_id("loop")
    client().delete_run(str(before))
    box = outbox(tracked)
    box.start_run("loop", LOOP, {})
    box.tags("loop", {"after": "wards"})
    assert deliver(tracked).run_id("loop") == before
    assert the(client(), LOOP).data.tags["after"] == "wards"


def test_a_run_that_is_gone_for_good_is_made_anew_when_its_loop_goes_on(tracked: Workspace) -> None:
    fill(tracked)
    deliver(tracked)
    state = tracked.state / "projects" / "tiny"
    done = delivered(state, LOOP)
    client().delete_run(done.runs["loop"])  # as `mlflow gc` follows it
    set_delivered(state, LOOP, done._replace(runs={**done.runs, "loop": "0" * 32}))
    box = outbox(tracked)
    box.start_run("loop", LOOP, {})
    box.tags("loop", {"after": "wards"})
    deliver(tracked)
    assert the(client(), LOOP).data.tags["after"] == "wards"


@pytest.mark.parametrize("said", ["params", wide("tag key"), wide("metric name"), "missing run"])
def test_one_line_that_mlflow_refuses_does_not_hold_up_the_rest(tracked: Workspace, said: str) -> None:
    box = fill(tracked)
    if said == "params":
        box.params("loop", {"train.lr": "another value"})
    elif said == "tag key":
        box.tags("loop", {"no\ttabs": "x"})
    elif said == "metric name":
        box.metrics("loop", {"val_a%b": 1.0})
    else:
        box.metrics("trial-9", {"x": 1.0})
    box.tags("loop", {"after": "wards"})
    deliver(tracked)
    assert undelivered(tracked.state / "projects" / "tiny") == []
    assert the(client(), LOOP).data.tags["after"] == "wards"


def test_a_store_that_is_away_is_told_in_seconds_and_nothing_is_lost(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tracked)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
        began = time.monotonic()
        made = MlflowExporter(tracked, "tiny", LOOP)
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1 cannot be used.*loopline reap"):
            made.deliver()
        assert time.monotonic() - began < 60, "patience of minutes"
        assert undelivered(tracked.state / "projects" / "tiny") == [LOOP]
    deliver(tracked)
    check_all(tracked)


def test_a_database_of_another_kind_is_a_store_error(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(workspace)
    broken = workspace.state / "broken.db"
    broken.write_text("no database " * 1000)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{broken}")
    with pytest.raises(StoreError, match=r"it is damaged: put it back"):
        MlflowExporter(workspace, "tiny", LOOP).deliver()
