"""A workspace of this version, or without a database, needs no step; a damaged one is a line."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tasks.host import database, stores
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.operations.doctor import Finding
from tasks.operations.upgrade.check import examine
from tests.conftest import MakeProject


def findings(workspace: Workspace) -> dict[str, Finding]:
    return {finding.what: finding for finding in examine(workspace)}


def test_a_workspace_without_a_loop_needs_no_step_and_gets_no_database(
    workspace: Workspace, make_project: MakeProject
) -> None:
    make_project("tiny")
    lines = findings(workspace)
    assert lines["state"].detail.endswith("state.db: empty: made by the first loop")
    assert {line.state for line in lines.values()} == {"ok"}
    assert database.is_absent(workspace.state)


def test_a_workspace_of_this_version_needs_no_step(workspace: Workspace, make_project: MakeProject) -> None:
    project = make_project("tiny")
    save_loop(workspace.state / "projects" / project.folder.name, LoopRecord("tiny-1", "finished"))
    lines = findings(workspace)
    assert lines["state"].detail.endswith(f"schema {database.REVISIONS[-1]}, as this version's")
    assert lines["loops"].detail == "none runs; of 1 projects the last one is read"
    assert {line.state for line in lines.values()} == {"ok"}


def test_a_damaged_database_is_one_line(workspace: Workspace) -> None:
    with closing(sqlite3.connect(workspace.state / database.FILE)) as raw:
        raw.execute("create table alembic_version (version_num text)")
    (workspace.state / database.FILE).write_bytes(b"no database" * 1000)
    line = findings(workspace)["state"]
    assert line.state == "wrong"
    assert line.detail.startswith(f"{workspace.state / database.FILE}: it is damaged")


def test_a_damaged_file_of_mlflow_is_one_line(workspace: Workspace) -> None:
    path = stores.database_file(stores.environment(workspace)["MLFLOW_TRACKING_URI"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database" * 1000)
    line = findings(workspace)["tracking"]
    assert (line.state, line.detail.endswith("file is not a database")) == ("wrong", True)
