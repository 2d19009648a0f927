"""Rows that a Python process hands over become the source of a project, and stay untouched where nothing changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UsageError
from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.operations.caller_rows import project_of_rows


def rows_of(folder: Path, count: int = 60, name: str = "rows.parquet") -> Path:
    folder.mkdir(exist_ok=True)
    columns = {"size": [n * 0.5 for n in range(count)], "Has Left": [n % 3 == 0 for n in range(count)]}
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return rows_of(tmp_path / "temporary")


def test_a_frame_becomes_a_project_with_its_rows(workspace: Workspace, rows: Path) -> None:
    project = project_of_rows(workspace, None, rows, "Has Left", is_frame=True)
    data = project.spec().data
    assert (project.folder.name, data.target, data.source) == ("has-left", "Has Left", "rows.parquet")
    assert (project.folder / "rows.parquet").read_bytes() == rows.read_bytes()


def test_the_same_frame_leaves_the_file_untouched(workspace: Workspace, rows: Path, tmp_path: Path) -> None:
    project = project_of_rows(workspace, "a", rows, "Has Left", is_frame=True)
    copy = project.folder / "rows.parquet"
    before = copy.stat()
    project_of_rows(workspace, "a", rows, None, is_frame=True)
    assert (copy.stat().st_mtime_ns, copy.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    more = rows_of(tmp_path / "later", 90)
    project_of_rows(workspace, "a", more, None, is_frame=True)
    assert pq.read_table(copy).num_rows == 90


def test_the_rows_of_a_loop_that_runs_stay(workspace: Workspace, rows: Path, tmp_path: Path) -> None:
    project = project_of_rows(workspace, "a", rows, "Has Left", is_frame=True)
    save_loop(project.state("a"), LoopRecord("a-1", "running", process=processes.identity()))
    more = rows_of(tmp_path / "later", 90)
    with pytest.raises(UsageError, match=r"a loop of a runs already \(a-1\): wait for it, or end it"):
        project_of_rows(workspace, "a", more, None, is_frame=True)
    assert (project.folder / "rows.parquet").read_bytes() == rows.read_bytes()


def test_a_path_is_as_of_loopline_new(workspace: Workspace, tmp_path: Path) -> None:
    path = rows_of(tmp_path / "own", name="customers.parquet")
    project = project_of_rows(workspace, "a", path, "Has Left", is_frame=False)
    assert project.spec().data.source == "customers.parquet"
    assert project_of_rows(workspace, "a", project.folder / "customers.parquet", None, is_frame=False) == project


def test_a_folder_is_read_where_it_is(workspace: Workspace, tmp_path: Path) -> None:
    rows_of(tmp_path / "own")
    project = project_of_rows(workspace, "a", tmp_path / "own", "Has Left", is_frame=False)
    assert project.spec().data.source == str(tmp_path / "own")
    assert project_of_rows(workspace, "a", tmp_path / "own", None, is_frame=False) == project


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("b", None, "target: got none for the new project 'b', expected one of size, Has Left: say target='Has Left'"),
        (None, None, "name: got none, and none follows from target None: give one, such as name='churn'"),
        (None, "1", "name: got none, and none follows from target '1'"),
        ("a", "size", r"predicts Has Left, got target size: leave it out, or give another `name`"),
    ],
)
def test_wrong_arguments_are_one_line_with_their_cure(
    workspace: Workspace, rows: Path, name: str | None, target: str | None, message: str
) -> None:
    project_of_rows(workspace, "a", rows, "Has Left", is_frame=True)
    with pytest.raises(UsageError, match=message):
        project_of_rows(workspace, name, rows, target, is_frame=True)


def test_a_project_with_another_source_takes_no_frame(workspace: Workspace, rows: Path, tmp_path: Path) -> None:
    path = rows_of(tmp_path / "own", name="customers.parquet")
    project_of_rows(workspace, "a", path, "Has Left", is_frame=False)
    with pytest.raises(UsageError, match=r"reads its rows from customers.parquet, got a frame: leave the rows out"):
        project_of_rows(workspace, "a", rows, None, is_frame=True)
