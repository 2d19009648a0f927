"""The workspaces that Loopline wrote at older commits, in `older_workspace/COMMIT/`, go on with today's.

`state.sql` is a state database after loops, two promotions and a canary, without the outbox and without all step
records but the registration's; `mlflow.json` is what MLflow's client showed of its registered model.
`tests.store_workspace` writes both; of 4dec9a03 it was one loop, and its moves are in MLflow's journal alone.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from models.serving.registry import MLFLOW
from models.serving.registry_comparison import JOURNAL, OWNER, staying
from models.serving.releases import ReleasePlan
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import last_loop
from tasks.mlflow import embedded_store
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import registered
from tasks.state.champion_moves import champion_of, moves_of, serving_state
from tasks.state.versions import versions_of
from tasks.state.workspace_id import workspace_id
from tests.conftest import MakeProject
from tests.registered import register_served

STORED = Path(__file__).with_name("older_workspace")


@pytest.fixture
def commit() -> str:
    return "4dec9a03"


@pytest.fixture
def older(tracked: Workspace, make_project: MakeProject, commit: str) -> Workspace:
    make_project("tiny")
    with closing(sqlite3.connect(tracked.state / database.FILE)) as raw:
        raw.execute("pragma journal_mode = wal")
        raw.executescript((STORED / commit / "state.sql").read_text())
    stored = json.loads((STORED / commit / "mlflow.json").read_text())
    client().create_registered_model("tiny", tags=stored["tags"])
    for number, tags in stored["versions"].items():
        source = tracked.state / "mlflow" / "artifacts" / number
        assert str(client().create_model_version("tiny", str(source), tags=tags).version) == number
    for alias, number in stored["aliases"].items():
        client().set_registered_model_alias("tiny", alias, number)
    return tracked


def said(*command: str) -> str:
    result = CliRunner().invoke(loopline, command)
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    return result.output


def moves(workspace: Workspace) -> list[tuple[Any, ...]]:
    return [(move.number, move.action, move.by, move.after) for move in moves_of(workspace.state, "tiny")[::-1]]


BEFORE = [(1, "promote", "lab:4187", "1"), (2, "promote", "lab:5754", "2")]


def content_of(folder: Path) -> dict[Path, bytes]:
    """All files but SQLite's notes of who reads."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm"}


def checked(code: int) -> dict[str, tuple[str, str, str]]:
    """What `upgrade-check` says, by subject: state, detail and step."""
    result = CliRunner().invoke(loopline, ["upgrade-check", "--json"])
    assert result.exit_code == code, f"{result.output}{result.exception}"
    return {line["what"]: (line["state"], line["detail"], line["cure"]) for line in json.loads(result.output)}


def test_the_check_before_an_upgrade_reads_it_and_changes_nothing(older: Workspace) -> None:
    before = content_of(older.root)
    findings = checked(0)
    assert content_of(older.root) == before
    state, detail, step = findings["state"]
    assert (state, detail.partition(": ")[2]) == ("warn", "schema 0005, this version has 0006")
    assert step.endswith("keeps the file as state.db.before-0006")
    assert findings["tracking"][0] == findings["specs"][0] == findings["packages"][0] == "ok"
    assert findings["loops"] == ("ok", "none runs; of 1 projects the last one is read", "")
    assert findings["records"] == ("ok", "the newest of each step of 1 projects are read", "")


def test_the_check_names_what_needs_a_step_before_the_upgrade(older: Workspace) -> None:
    spec = older.root / "projects" / "tiny" / "project.yaml"
    spec.write_text(spec.read_text() + "tarin: {epochs: 3}\n")
    with closing(sqlite3.connect(older.state / database.FILE)) as raw, raw:
        raw.execute("update loops set state = 'running'")
        raw.execute("update step_records set content = '{}'")
    findings = checked(1)
    assert "did you mean 'train'" in findings["spec"][1]
    assert findings["loops"][:2] == ("wrong", "not closed: tiny-20261127-150303-e006e782")
    assert "`loopline reap`" in findings["loops"][2]
    assert findings["records"][:2] == ("warn", "not read: tiny register")


def test_the_check_lets_the_champion_predict(tracked: Workspace) -> None:
    register_served(tracked, "tiny", "1")
    open_registry(tracked, "tiny").promote("1", None)
    embedded_store.settle(os.environ["MLFLOW_TRACKING_URI"])
    before = content_of(tracked.root)
    assert checked(0)["champion"] == ("ok", "tiny version 1 loads and predicts", "")
    assert content_of(tracked.root) == before
    (graph,) = (tracked.state / "mlflow").rglob("model.onnx")
    graph.write_bytes(b"cut")
    state, detail, cure = checked(1)["champion"]
    assert state == "wrong"
    assert "tiny version 1: " in detail
    assert cure.startswith("`loopline run tiny`")


def test_the_check_refuses_what_a_newer_version_wrote(older: Workspace) -> None:
    with closing(sqlite3.connect(older.state / database.FILE)) as raw, raw:
        raw.execute("update alembic_version set version_num = '9999'")
    assert "has schema 9999, expected 0006 or older: a newer Loopline wrote it" in checked(1)["state"][1]


def test_its_journal_becomes_rows_and_its_canary_and_loop_stay(older: Workspace) -> None:
    assert "promote   1 -> 2" in said("release", "tiny", "--history")
    assert moves(older) == BEFORE
    newest = serving_state(older.state, "tiny")
    assert newest is not None
    assert newest.move.plan.canary is not None
    assert (newest.move.plan.canary.version, newest.move.plan.canary.share) == ("3", 0.1)
    versions = {version.number: version.tags["loopline.key"][:5] for version in versions_of(older.state, "tiny")}
    assert versions == {"1": "b2481", "2": "key-2", "3": "key-3"}
    tags, own_id = registered("tiny").tags, workspace_id(older.state)
    assert tags[OWNER] == own_id
    assert {json.loads(text)["workspace"] for name, text in tags.items() if name.startswith(JOURNAL)} == {own_id}
    loop = last_loop(older.state / "projects" / "tiny")
    assert loop is not None
    assert (loop.loop_id, loop.state) == ("tiny-20261127-150303-e006e782", "finished")
    assert open_registry(older, "tiny").rollback().after == "1"
    assert registered("tiny").aliases["champion"] == "1"


def test_a_move_by_hand_before_the_upgrade_is_heard(older: Workspace) -> None:
    client().set_registered_model_alias("tiny", "champion", "3")
    said("status", "tiny")
    assert moves(older) == [*BEFORE, (3, "promote", MLFLOW, "3")]
    assert champion_of(older.state, "tiny").number == "3"  # type: ignore[union-attr]


def test_after_the_way_back_the_next_upgrade_goes_on_as_the_owner(older: Workspace) -> None:
    """As upgrade.md says it: the copy is put back, the older one promotes, and Loopline is upgraded again."""
    said("status", "tiny")
    file, copy = older.state / database.FILE, older.state / "state.db.before-0006"
    with closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("select version_num from alembic_version").fetchall() == [("0005",)]
        assert kept.execute("select count(*) from loops").fetchall() == [(1,)]
    registry = open_registry(older, "tiny")
    registry.move(lambda rows, _: staying(rows, ReleasePlan(), action="end"), "tried")
    owner = registered("tiny").tags[OWNER]
    for path in older.state.glob(f"{database.FILE}-*"):
        path.unlink()
    shutil.move(copy, file)
    entry = {"number": 4, "at": 9.0, "by": "lab:1", "reason": "", "action": "promote", "before": "2", "after": "1"}
    client().set_registered_model_tag("tiny", f"{JOURNAL}000004", json.dumps({**entry, "loop_id": ""}))
    client().set_registered_model_alias("tiny", "champion", "1")
    client().set_registered_model_alias("tiny", "previous", "2")

    assert "version 1" in said("status", "tiny")
    assert moves(older) == [*BEFORE, (3, "end", registry.actor, "2"), (4, "promote", "lab:1", "1")]
    assert workspace_id(older.state) == owner == registered("tiny").tags[OWNER]
    assert open_registry(older, "tiny").promote("3", "1").after == "3"
    assert registered("tiny").aliases["champion"] == "3"


@pytest.mark.parametrize("commit", ["f47e5f60"])
def test_the_workspace_of_the_last_landing_goes_on(older: Workspace) -> None:
    before = content_of(older.root)
    findings = checked(0)
    assert content_of(older.root) == before
    assert {findings[what][0] for what in ("state", "tracking", "specs", "packages", "loops", "records")} == {"ok"}
    assert "promote   1 -> 2" in said("release", "tiny", "--history")
    newest = serving_state(older.state, "tiny")
    assert newest is not None
    assert newest.move.plan.canary is not None
    assert (newest.move.plan.canary.version, newest.move.plan.canary.share) == ("3", 0.1)
    assert {version.number for version in versions_of(older.state, "tiny")} == {"1", "2", "3"}
    assert registered("tiny").tags[OWNER] == workspace_id(older.state)
    loop = last_loop(older.state / "projects" / "tiny")
    assert loop is not None
    assert loop.state == "finished"
    assert open_registry(older, "tiny").rollback().after == "1"
    assert registered("tiny").aliases["champion"] == "1"
