"""`loopline gc`: a dry run by default, a table by kind, reasons, and the removal."""

from __future__ import annotations

import json
import os
import sqlite3
import time

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from flows.commands.upkeep.gc import command
from models.errors import GateRefused, StoreError
from tasks.gc.retention import KEEP_LOOPS
from tasks.host import database, tables
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import LOOP_LOCK
from tasks.mlflow import embedded_store, garbage
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.operations.collect_garbage import MARK, DailyCollection
from tasks.state import versions
from tasks.state.outbox import Delivered, set_delivered
from tests.conftest import MakeProject
from tests.past_loops import add_loop, aged, crown
from tests.registered import register_served


@pytest.fixture(autouse=True)
def no_last_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few loops stand for many: none stays for its number alone."""
    monkeypatch.setenv(KEEP_LOOPS, "0")


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.output


def test_it_shows_first_and_removes_when_told(workspace: Workspace, make_project: MakeProject) -> None:
    state = make_project().state("tiny")
    for number, days in enumerate((200, 150, 1), 1):
        add_loop(workspace, "tiny", number, days)
    crown(workspace, "tiny", "1")
    sizes = [found["bytes"] for found in json.loads(run("--json"))["kinds"]["versions"]]
    assert sizes == [0, 0, 0], "their rows name no files"
    printed = run()
    assert "step folders" in printed
    assert "`loopline gc --delete`" in printed
    assert "it was champion" not in printed
    assert "step records: tiny train 5: tiny version 1: it is the champion" in run("tiny", "--why")
    assert len(list(state.glob("work/*/*"))) == 21
    with held(state / LOOP_LOCK, lambda: "held"):
        assert "tiny: nothing was removed: a loop of it runs" in run("--delete")
    removed = json.loads(run("--delete", "--json"))["removed"]
    assert removed["step folders"] == 14 * 5
    assert len(list(state.glob("work/*/*"))) == 7


def test_it_says_what_waits_for_mlflow_and_for_a_right_spec(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Workspace) -> None:
        raise StoreError("MLflow is away")

    monkeypatch.setattr(embedded_store, "initialise", fail)
    project = make_project()
    for number, days in enumerate((200, 150), 1):
        add_loop(workspace, "tiny", number, days)
    printed = run("--delete")
    assert "tiny, versions and what they need: nothing was removed: MLflow is away" in printed
    assert not list(project.state("tiny").glob("work/*/*")), "what does not need MLflow goes"
    assert versions.versions_of(workspace.state, "tiny")
    project.spec_path.write_text("name: tiny\ngoal: [wrong]\n")
    assert "tiny, versions and what they need: nothing was removed: " in run("--delete")


def add_versions(workspace: Workspace) -> dict[int, str]:
    """Five versions with runs: the first is the champion, the third has an alias, the fifth is young."""
    store = client()
    runs = {}
    for number in range(1, 6):
        register_served(workspace, "tiny", str(number))
        experiment = experiment_id(store, workspace, "tiny")
        runs[number] = store.create_run(experiment).info.run_id
        store.log_text(runs[number], "page", "card.html")
        set_delivered(workspace.state / "projects" / "tiny", f"tiny-{number}", Delivered(1, {"loop": runs[number]}))
    store.set_registered_model_alias("tiny", "audit", "3")
    crown(workspace, "tiny", "1")
    with database.writing(workspace.state) as connection:  # version 5 is the challenger, since it was judged last
        connection.execute(tables.versions.update().values(at=1e9))
        connection.execute(tables.deliveries.update().values(at=1e9))
        mine = tables.deliveries.c.loop_id == "tiny-5"
        connection.execute(tables.deliveries.update().where(mine).values(at=database.now(connection)))
    return runs


def test_versions_and_runs_go_from_mlflow_and_what_was_champion_or_has_an_alias_stays(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project().state("tiny").mkdir(parents=True)
    runs, store = add_versions(workspace), client()
    listed = json.loads(run("--json"))["kinds"]
    reasons = {found["name"]: found["reason"].rpartition(": ")[2] for found in listed["versions"]}
    assert reasons == {
        "1": "it is the champion",
        "2": "",
        "3": "MLflow has the alias audit",
        "4": "",
        "5": "it is the challenger",
    }
    assert all(found["bytes"] > 0 for found in listed["versions"])
    assert [found["name"] for found in listed["runs"] if not found["reason"]] == [f"tiny-{n}" for n in (1, 2, 3, 4)]
    models = sum(1 for _ in (workspace.state / "mlflow" / "artifacts" / "tiny" / "models").glob("*/artifacts/*.onnx"))
    assert json.loads(run("--delete", "--json"))["removed"]["versions"] > 0
    left = {str(version.version) for version in store.search_model_versions("name = 'tiny'")}
    assert left == {"1", "3", "5"}
    files = workspace.state / "mlflow" / "artifacts" / "tiny"
    assert sum(1 for _ in files.glob("models/*/artifacts/*.onnx")) == models - 2
    assert not (files / runs[2] / "artifacts" / "card.html").exists()
    assert (files / runs[5] / "artifacts" / "card.html").exists()
    assert store.get_run(runs[2]).info.lifecycle_stage == "deleted"
    assert numbers_left(workspace) == ["1", "3", "5"]
    monkeypatch.setattr(garbage, "PURGE_AFTER_S", -60.0)
    monkeypatch.setattr(garbage, "_AGE", "0s")
    run("--delete")
    with sqlite3.connect(workspace.state / "mlflow" / "mlflow.db") as connection:
        kept = {run_id for (run_id,) in connection.execute("select run_uuid from runs")}
        models_left = connection.execute("select count(*) from logged_models").fetchone()[0]
    assert not kept & {runs[number] for number in (1, 2, 3, 4)}
    assert runs[5] in kept
    assert models_left == 3
    with database.reading(workspace.state) as connection:
        assert connection.scalars(select(tables.deliveries.c.loop_id)).all() == ["tiny-5"]
        assert versions.withdrawn(connection, "tiny") == []
    with pytest.raises(GateRefused, match="version 2 was removed"):
        open_registry(workspace, "tiny").promote("2", "1")


def numbers_left(workspace: Workspace) -> list[str]:
    return [version.number for version in versions.versions_of(workspace.state, "tiny")]


def test_the_platform_collects_once_a_day(workspace: Workspace, make_project: MakeProject) -> None:
    work = make_project().state("tiny") / "work" / "train"
    old = aged(work / "old" / "x", 30)
    daily = DailyCollection(workspace)
    assert daily.once() is None, "not on its first day"
    assert daily.once() is None
    os.utime(workspace.platform / MARK, (time.time() - 90_000,) * 2)
    process = daily.once()
    assert process is not None
    try:
        assert process.wait(120) == 0
    finally:
        process.kill()
    assert not old.exists()
    assert daily.once() is process, "it is not due again"
