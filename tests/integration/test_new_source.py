"""The recipe for a source works: files of a project alone, which pass the suite and say when new rows came."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from flows.cli import loopline
from tasks.host.workspace import Project, Workspace
from tasks.loop.growth import growth
from tasks.loop.lifecycle import open_stage
from tasks.loop.step_cache import StepCache
from tasks.steps.ingest import ingest
from tests.recipes import follow

ROWS = 300


def fill(project: Project) -> None:
    subprocess.run([sys.executable, project.folder / "fill.py"], check=True)


def why_ingest(project: Project) -> list[str]:
    return StepCache(project, project.spec()).plan_data()[0].reasons


def test_a_row_of_a_projects_folder_is_read_checked_and_says_what_came(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = follow("Bring a source", workspace.root)
    project = workspace.project("orders")
    assert {path.relative_to(project.folder).name for path in paths} == {"warehouse.py", "project.yaml", "fill.py"}
    fill(project)
    monkeypatch.chdir(project.folder)
    checked = CliRunner().invoke(loopline, ["check-row", "./warehouse.py:SOURCE"])
    assert checked.exit_code == 0, checked.output
    assert checked.output.count("ok") == 8
    with open_stage(project) as loop:
        ingest(loop)
    assert why_ingest(project) == []
    fill(project)
    grown = growth(project, project.spec())
    assert grown is not None
    assert grown.rows == ROWS
    assert why_ingest(project) == ["source ./warehouse.py:SOURCE: changed"]
    with open_stage(project) as loop:
        record, was_done = ingest(loop)
    assert (record.result["rows"], was_done) == (2 * ROWS, False)


def test_a_misspelt_column_is_found_without_reading(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("Bring a source", workspace.root)
    project = workspace.project("orders")
    monkeypatch.setenv("LOOPLINE_HOME", str(workspace.root))
    refused = CliRunner().invoke(loopline, ["plan", "orders", "-s", "data.target=retuned"])
    assert refused.exit_code != 0
    assert "did you mean 'returned'" in str(refused.output) + str(refused.exception)
    assert not (project.folder / "orders.db").exists()
