"""A whole loop of a tiny project, step by step in this process and without Prefect: what each step leaves behind."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import optuna
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from models.data.feeds import feeds, targets
from models.data.preparation import Preparation
from models.errors import GateRefused, StoreError, UsageError
from models.files import sha256
from models.inference.predict import predict
from models.pipeline.records import StepRecord
from models.project_spec.reader import read_spec
from models.training.job import TrainingJob
from tasks.host import processes, stores
from tasks.host.workspace import Project, Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import last_loop, save_loop
from tasks.loop.lifecycle import open_loop
from tasks.loop.loop import Loop
from tasks.loop.step_cache import StepCache
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import aliased
from tasks.operations.monitor import look
from tasks.operations.reap import reap
from tasks.ranks.rank_pool import RankPool
from tasks.state.outbox import undelivered
from tasks.state.predictions import label_store, prediction_log
from tasks.steps import card, export, ingest, judge, prepare, promote, register, search, train, validate, version
from tasks.tools.optuna_study import ask, open_study, trials_of
from tests.environment import QUIET
from tests.tool_pages import check_run, check_study

ROWS = "x,c,y\n" + "".join(f"{i / 7},{'uvw'[i % 3]},{'yes' if i % 3 else 'no'}\n" for i in range(400))
SPEC = """\
name: tiny
goal: {metric: accuracy}
data:
  source: data.csv
  target: y
  expectations:
    - {expect: column_values_to_be_between, arguments: {column: x, min_value: 0, max_value: 100}}
search:
  trials: 2
  epochs: 1
  space:
    train.lr: {low: 0.03, high: 0.1, log: true}
train: {epochs: 6, batch: 32, threads: 1}
model: {net: mlp, arguments: {hidden: 8, layers: 1}}
judge: {min_samples: 10, margin: 0.5}
"""


DATA = (ingest.ingest, validate.validate_raw, prepare.prepare, validate.validate_prepared, version.version)
MODEL = (search.search, train.fit, export.export, judge.judge, register.register, promote.promote, card.write_card)


def carry_round(project: Project, *overrides: str) -> tuple[Loop, dict[str, bool]]:
    """The steps of `flows/train.py` as plain calls; says which had been done before."""
    before: dict[str, bool] = {}
    with open_loop(project, overrides) as loop:
        for act in (*DATA, *MODEL):
            record, was_done = act(loop)
            before[record.step] = was_done
    return loop, before


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace for all tests of this file, and the environment that goes with it."""
    root = tmp_path_factory.mktemp("loop")
    before = dict(os.environ)
    os.environ.update({**QUIET, "LOOPLINE_HOME": str(root)})
    project = root / "projects" / "tiny"
    project.mkdir(parents=True)
    (project / "project.yaml").write_text(SPEC)
    (project / "data.csv").write_text(ROWS)
    made = Workspace(root)
    made.make()
    stores.configure(made)
    yield made
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def project(place: Workspace) -> Project:
    return place.project("tiny")


@pytest.fixture(scope="module")
def first(project: Project) -> Loop:
    """The first loop."""
    loop, before = carry_round(project)
    assert not any(before.values())
    return loop


@pytest.fixture(autouse=True)
def _environment(place: Workspace, _own_environment: None) -> None:
    os.environ["LOOPLINE_HOME"] = str(place.root)
    stores.configure(place)


def weights_of(loop: Loop) -> Path:
    return loop.place(loop.done["train"]) / loop.done["train"].result["weights"]


def run_of(loop: Loop) -> Any:
    run_id = loop.delivery.run_id("loop")
    assert run_id is not None
    return client().get_run(run_id)


def test_the_first_model_is_judged_promoted_and_registered(first: Loop) -> None:
    outcome = first.done["promote"].result
    assert (outcome["decision"], outcome["version"]) == ("promote", "1"), outcome
    champion = aliased("tiny")
    assert champion is not None
    assert champion.number == "1"
    for tag in ("loop_id", "dataset", "spec", "code", "seed", "world_size", "weights_sha256", "verdict"):
        assert champion.tags[f"loopline.{tag}"], tag
    assert champion.tags["loopline.loop_id"] == first.id
    assert champion.tags["loopline.best"] == champion.tags["loopline.judged_best"] == ""
    assert "predictions.npz" in champion.hashes


def test_one_loop_id_is_in_every_tool(first: Loop) -> None:
    run = run_of(first)
    assert (run.info.run_name, run.data.tags["loopline.loop_id"]) == (first.id, first.id)
    assert first.id in (first.project.folder / "dvc.yaml").read_text()


def test_the_record_in_mlflow_is_whole(first: Loop) -> None:
    run = run_of(first)
    check_run(first, run)
    trials = client().search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert {trial.info.status for trial in trials} == {"FINISHED"}
    assert len(trials) == 2


def test_optunas_page_names_the_goal_and_leads_to_runs_and_curves(first: Loop) -> None:
    check_study(first)


def test_what_it_cost_is_told_a_trial_a_run_a_search_and_a_version(first: Loop) -> None:
    run, champion = run_of(first), aliased("tiny")
    assert champion is not None
    told = run.data.metrics
    assert told["system/cost/total/flops"] == told["system/cost/search/flops"] + told["system/cost/train/flops"]
    assert told["system/cost/total/device_seconds"] > told["system/cost/train/device_seconds"] > 0
    epochs = {"device_s", "data_wait_s", "peak_memory_mb", "flops", "samples_per_s"}
    assert {f"system/{name}" for name in epochs} <= set(told)
    trials = client().search_runs([run.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
    assert sum(trial.data.metrics["system/cost/flops"] for trial in trials) == told["system/cost/search/flops"]
    assert float(champion.tags["loopline.cost.flops"]) == pytest.approx(told["system/cost/total/flops"], rel=1e-5)
    assert re.search("Which columns.*device-seconds, with the search", (first.state / "card.html").read_text(), re.S)


def test_the_version_answers_where_there_is_no_loopline(first: Loop, tmp_path: Path) -> None:
    """By MLflow and what its model names alone, in another folder; it gives what its signature says."""
    place = mlflow.artifacts.download_artifacts("models:/tiny/1", dst_path=str(tmp_path))
    packages = Path(mlflow.__file__).parents[1]
    code = (
        "import importlib.util, json, mlflow.pyfunc\n"
        "assert not importlib.util.find_spec('models') and not importlib.util.find_spec('tasks')\n"
        f"model = mlflow.pyfunc.load_model({place!r})\n"
        "answer = model.predict(model.input_example)\n"
        "types = {part.name: part.type.name for part in model.metadata.signature.outputs.inputs}\n"
        "print(json.dumps([types, answer.to_dict('records')]))\n"
    )
    # Without `site`, and so without the link by which this repository is installed.
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    out = subprocess.check_output([sys.executable, "-S", "-c", code], env=environ, cwd=tmp_path, text=True)
    types, answers = json.loads(out.splitlines()[-1])
    assert types == {"label": "string", "probability_no": "double", "probability_yes": "double"}
    assert [list(answer) for answer in answers] == [list(types)] * 3
    assert {answer["label"] for answer in answers} <= {"no", "yes"}


def test_the_weights_are_what_the_version_says(first: Loop) -> None:
    weights = weights_of(first)
    champion = aliased("tiny")
    assert champion is not None
    assert sha256(weights) == first.done["train"].outputs[first.step_cache.records.name(weights)]
    assert champion.tags["loopline.weights_sha256"] == first.done["train"].result["weights_sha256"]


def log_predictions(project: Project, state: Path, version: str) -> int:
    """Predict the training rows as they are served, log them, and label them; how many."""
    preparation = Preparation.load(project.prepared)
    (feed,) = feeds(project.prepared, "train", preparation)
    graph = next((state / "work" / "export").glob("*/model.onnx"))
    score = predict(graph, [feed], preparation)
    ids = [str(place) for place in range(len(score))]
    now = [datetime.now(UTC)] * len(score)
    inputs = {f"input.{name}": pa.array(values) for name, values in feed.items()}
    table = pa.table({"id": ids, "at": now, "version": [version] * len(score), "score": score, **inputs})
    prediction_log(state).append(table)
    labels = ["yes" if each else "no" for each in targets(project.prepared, "train")]
    label_store(state).append(pa.table({"id": ids, "label": labels, "at": now}))
    return len(score)


@pytest.fixture
def no_feedback(first: Loop) -> Iterator[None]:
    """Labels would be rows of the next loop's dataset: they go before the other tests."""
    yield
    for folder in ("predictions", "labels"):
        shutil.rmtree(first.state / folder)


@pytest.mark.usefixtures("no_feedback")
def test_the_champion_is_watched_against_the_reference_registered_with_it(first: Loop, project: Project) -> None:
    champion = aliased("tiny")
    assert champion is not None
    assert "monitoring-reference.json" in json.loads(champion.tags["loopline.files"])
    num = log_predictions(project, first.state, champion.number)
    spec = read_spec(project.spec_path, ["monitor.window=100", "monitor.min_labels=30"], project.shown_spec)
    found = look(project, spec)
    assert (found.champion, found.num_predictions, found.num_labels, found.notes) == (champion.number, num, num, [])
    cached = project.workspace.cache / "models" / "tiny" / champion.number
    assert (cached / "monitoring-reference.json").is_file()
    windows = found.of_champion()
    assert len(windows) == num // 100
    assert all(window.realised is not None and window.estimated is not None for window in windows)
    assert [drift.name for window in windows[:1] for drift in window.features] == ["x", "c"]
    run = run_of(first)
    assert run.data.metrics["monitor_predictions"] == 100
    assert len(client().get_metric_history(run.info.run_id, "monitor_accuracy")) == len(windows)
    assert run.info.status == "FINISHED"
    assert look(project, spec).windows == found.windows
    assert len(client().get_metric_history(run.info.run_id, "monitor_accuracy")) == len(windows)


def test_nothing_runs_and_nothing_is_open_after_it(first: Loop) -> None:
    assert first.outbox.open_runs() == []
    assert undelivered(first.state) == []
    last = last_loop(first.state)
    assert last is not None
    assert last.state == "finished"
    assert reap(first.workspace) == []


def test_a_second_loop_does_nothing_again(first: Loop, project: Project) -> None:
    loop, before = carry_round(project)
    assert all(before.values()), before
    assert loop.ran == []
    assert loop.id != first.id
    assert len(open_registry(project.workspace, "tiny").journal()) == 1


def test_lost_settings_of_a_training_are_named_with_the_cure(first: Loop, project: Project) -> None:
    job = weights_of(first).with_name("job.json")
    content = job.read_text()
    job.write_text(content[:-9])
    with pytest.raises(StoreError, match=r"job\.json: cannot be read: remove .* and run again"):
        carry_round(project, "serve.variants=[]")
    job.write_text(content)


def test_the_card_is_one_page_that_fetches_nothing(first: Loop) -> None:
    page = (first.state / "card.html").read_text()
    assert first.id in page
    assert re.findall(r"(?:src|href)=[\"']https?://", page) == []


@pytest.mark.usefixtures("first")
def test_a_validation_that_warns_now_is_on_the_card(project: Project) -> None:
    """The model is the same: nothing is trained or judged again, and its version stays the loop's that made it."""
    spec = project.spec_path.read_text()
    champion = aliased("tiny")
    assert "warned" not in (project.state("tiny") / "card.html").read_text()
    warning = "    - {expect: column_max_to_be_between, severity: warn, arguments: {column: x, max_value: 1}}\n"
    project.spec_path.write_text(spec.replace("search:\n", f"{warning}search:\n"))
    try:
        loop, before = carry_round(project)
    finally:
        project.spec_path.write_text(spec)
    again = [name for name, was_done in before.items() if not was_done]
    assert again == ["validate-raw", "validate-prepared", "register", "card"]
    assert champion == aliased("tiny")
    assert loop.done["validate-raw"].result["status"] == "warned"
    assert "warned" in (loop.state / "card.html").read_text()


@pytest.mark.wide  # by the command line in `tests/e2e/test_loop.py`
def test_other_settings_are_judged_against_the_champion(first: Loop, project: Project) -> None:
    loop, before = carry_round(project, "train.epochs=7", "search.trials=0")
    done = [name for name, was_done in before.items() if was_done]
    assert done[:5] == ["ingest", "validate-raw", "prepare", "validate-prepared", "version"]
    assert not before["train"]
    champion = aliased("tiny")
    assert champion is not None
    assert loop.done["judge"].result["rival"].startswith("1:")
    assert loop.done["judge"].result["champion_value"] is not None
    if loop.done["promote"].result["decision"] == "promote":
        assert champion.number == loop.done["promote"].result["version"] == "2"


def test_a_loop_may_begin_with_the_champion_s_weights(first: Loop, project: Project) -> None:
    """Its net has the version's arguments; what is frozen stays the version's to the bit; the rerun owes nothing."""
    champion = aliased("tiny")
    assert champion is not None
    settings = ["train.start.weights=champion", "train.start.freeze=[trunk.first]", "train.epochs=2", "search.trials=0"]
    loop, before = carry_round(project, *settings)
    assert not before["train"]
    assert loop.done["train"].parts["input:start"] == champion.identity
    job = json.loads(weights_of(loop).with_name("job.json").read_text())
    old, new = load_file(job["start"]["weights"]), load_file(weights_of(loop))
    held = [name for name in old if name.startswith("trunk.first")]
    assert held
    assert all((old[name] == new[name]).all() for name in held)
    assert any((old[name] != new[name]).any() for name in old)
    assert run_of(loop).data.tags["loopline.start"].startswith(f"tiny version {champion.number} ")
    assert f"tiny version {champion.number}" in (loop.state / "card.html").read_text()
    _, before = carry_round(project, *settings)
    assert before["train"], "the champion that came of it is no reason to train once more"
    with pytest.raises(UsageError, match="no version 99"):
        carry_round(project, "train.start.weights=99")


def test_the_reaper_ends_what_a_killed_loop_left_open(project: Project, place: Workspace) -> None:
    state = project.state("tiny")
    dead = {**processes.identity(), "started": 1.0}
    last = last_loop(state)
    assert last is not None
    save_loop(state, replace(last, loop_id="tiny-killed", state="running", process=dead))
    from tasks.state.outbox import Outbox

    box = Outbox(state, "tiny-killed")
    box.start_run("loop", "tiny-killed", {"loopline.loop_id": "tiny-killed"})
    box.start_run("trial-0", "tiny-killed/trial-0", {}, parent="loop")
    from models.project_spec.reader import read_spec

    settings = read_spec(project.spec_path).search
    study = open_study(place, "tiny-killed", settings, "maximize", {})
    ask(study, settings, settings.space or {}, 0, 0)
    note = state / "work" / "search" / "killed" / "study.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"study": "tiny-killed"}))
    said = "\n".join(reap(place))
    assert "tiny-killed: was killed" in said
    assert "trial 0 was interrupted" in said
    assert "delivered what waited" in said
    experiment = client().get_experiment_by_name("tiny")
    assert experiment is not None
    runs = client().search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'")
    assert list(runs) == []
    again = open_study(place, "tiny-killed", settings, "maximize", {})
    assert again.get_trials(states=(optuna.trial.TrialState.RUNNING,)) == []
    assert trials_of(again) == []
    assert reap(place) == []


def test_a_trial_drawn_again_after_a_kill_finds_its_own_checkpoints(
    place: Workspace, first: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second trial's gang is stopped where it began; the next search trains it in the same folder."""
    folder = place.root / "projects" / "cut"
    folder.mkdir()
    (folder / "project.yaml").write_text(SPEC.replace("name: tiny", "name: cut"))
    (folder / "data.csv").write_text(ROWS)
    begun: list[Path] = []
    run = RankPool.run

    def stop_the_second(pool: RankPool, task: TrainingJob, on_epoch: Any = None) -> Any:
        begun.append(task.folder)
        assert task.checkpoints
        if len(begun) == 2:
            raise KeyboardInterrupt
        return run(pool, task, on_epoch)

    monkeypatch.setattr(RankPool, "run", stop_the_second)

    def searched() -> StepRecord:
        with open_loop(place.project("cut"), ()) as loop:
            ingest.ingest(loop)
            prepare.prepare(loop)
            return search.search(loop)[0]

    with pytest.raises(KeyboardInterrupt):
        searched()
    assert searched().result["trials"] == 2
    assert begun[1] == begun[2]
    assert len(set(begun)) == 2


@pytest.mark.wide  # of the outbox: test_delivery.py; of the registry: test_registry.py
def test_a_store_that_is_away_stops_registration_and_loses_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "train.epochs=8", "search.trials=0"
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1"):
            carry_round(project, *settings)
    loop, before = carry_round(project, *settings)
    assert before["train"], "trained while the store was away"
    assert run_of(loop).info.status == "FINISHED"


def test_a_registry_that_was_emptied_is_no_new_one(first: Loop, project: Project) -> None:
    """Its records say what must be there; nothing runs, nothing is written into the empty file, and a plan goes on."""
    database = stores.database_file(os.environ["MLFLOW_TRACKING_URI"])
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    whole, book = database.read_bytes(), last_loop(first.state)
    database.write_bytes(b"")
    try:
        with pytest.raises(StoreError, match=r"holds nothing of tiny, whose version \d was .* copy; or, .* remove "):
            carry_round(project, "train.epochs=9")
        assert StepCache(project, read_spec(project.spec_path)).plan()
        assert database.read_bytes() == b""
        assert last_loop(first.state) == book
    finally:
        database.write_bytes(whole)
    assert aliased("tiny") is not None


@pytest.mark.wide
def test_bad_data_is_rejected_before_anything_is_trained(project: Project) -> None:
    data = Path(project.folder / "data.csv")
    data.write_text(ROWS + "5000,u,yes\n")
    champion = aliased("tiny")
    with pytest.raises(GateRefused, match="x") as refused:
        carry_round(project)
    assert aliased("tiny") == champion
    assert Path(re.findall(r"the report is (\S+\.html)", str(refused.value))[0]).is_file()
    assert list((project.state("tiny") / "quarantine").rglob("*.parquet"))
    data.write_text(ROWS)
    _, before = carry_round(project)
    assert before["prepare"]
