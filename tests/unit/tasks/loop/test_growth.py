"""What came at a source is found without reading it, once for each change."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import UserCodeError
from models.project_spec.reader import read_spec
from tasks.host.workspace import Project
from tasks.loop.growth import SourceGrowth, growth
from tasks.loop.lifecycle import open_stage
from tasks.steps import ingest as ingesting
from tests.conftest import MakeProject

LATER = 1e6


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny")


def found(project: Project, after_s: float = LATER) -> SourceGrowth | None:
    return growth(project, read_spec(project.spec_path), time.time() + after_s)


def read(project: Project) -> None:
    with open_stage(project) as loop:
        ingesting.ingest(loop)


def test_rows_added_to_a_file_are_counted_and_told_once(project: Project) -> None:
    assert found(project) is None, "never read: nothing to compare with"
    read(project)
    assert found(project) is None
    with (project.folder / "data.csv").open("a") as file:
        file.write("1,u,no\n2,v,yes\n")
    assert found(project, after_s=0.0) is None, "it may still be being written"
    first = found(project)
    assert first is not None
    assert (first.rows, first.text) == (2, "data.csv: +2 rows")
    assert found(project) == first
    read(project)
    assert found(project) is None


def test_a_file_written_again_with_the_same_content_is_nothing_new(project: Project) -> None:
    read(project)
    (project.folder / "data.csv").write_text((project.folder / "data.csv").read_text())
    assert found(project) is None


def test_a_file_in_a_folder_is_a_partition_that_arrived(project: Project) -> None:
    folder = project.folder / "parts"
    folder.mkdir()
    table = pa.table({"x": [float(i) for i in range(60)], "y": ["yes", "no"] * 30})
    pq.write_table(table, folder / "2026-01.parquet")
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", "parts"))
    read(project)
    assert found(project) is None
    pq.write_table(table.slice(0, 25), folder / "2026-02.parquet")
    grown = found(project)
    assert grown is not None
    assert grown.rows == 25


SOURCE = """
import pandas as pd
def load(project):
    return pd.read_csv(project / "data.csv")
def arrived(project):
    return {said}
"""


def with_function(project: Project, said: str) -> None:
    (project.folder / "source.py").write_text(SOURCE.format(said=said))
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", "./source.py:load"))


def test_a_function_says_itself_what_arrived(project: Project) -> None:
    with_function(project, "(project / 'days').read_text().split()")
    days: Path = project.folder / "days"
    days.write_text("mon tue")
    read(project)
    assert found(project) is None
    days.write_text("mon tue wed")
    grown = found(project)
    assert grown is not None
    assert grown.text == "came at ./source.py:load: wed"


@pytest.mark.parametrize(("said", "told"), [("1 / 0", "ZeroDivisionError"), ("object()", "expected a JSON value")])
def test_a_function_that_fails_is_the_users_own_error(project: Project, said: Any, told: str) -> None:
    with_function(project, "[]")
    read(project)
    with_function(project, said)
    with pytest.raises(UserCodeError, match=told):
        found(project)


def test_a_package_never_grows_and_a_function_without_arrived_is_not_asked(project: Project) -> None:
    with_function(project, "[]")
    source = project.folder / "source.py"
    source.write_text(source.read_text().split("def arrived")[0])
    read(project)
    assert found(project) is None
    project.spec_path.write_text(project.spec_path.read_text().replace("./source.py:load", "pypi:a==1!b.csv"))
    assert found(project) is None


def test_new_rows_of_a_query_are_told_once_and_fetched_alone(project: Project) -> None:
    source = "{sql: 'select id, x, y, day from trips', at: 'sqlite:///trips.db', cursor: day}\n  id: id"
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", source))
    with sqlite3.connect(project.folder / "trips.db") as trips:
        trips.execute("create table trips (id integer, x real, y text, day text)")
        _add(trips, range(1, 101))
    read(project)
    assert found(project) is None
    with sqlite3.connect(project.folder / "trips.db") as trips:
        trips.execute("vacuum")  # the file is another one, its rows are not
        assert found(project) is None
        _add(trips, range(101, 121))
    first = found(project)
    assert first is not None
    assert (first.rows, first.text) == (20, "sqlite:///trips.db: +20 rows")
    assert found(project) == first
    read(project)
    assert found(project) is None
    assert pq.read_table(project.raw).column("id").to_pylist() == [*range(1, 121)]


def _add(trips: sqlite3.Connection, ids: range) -> None:
    rows = [(number, number / 2, ("yes", "no")[number % 2], f"+{number} minutes") for number in ids]
    trips.executemany("insert into trips values (?, ?, ?, datetime('2026-01-01', ?))", rows)
    trips.commit()


ROW = """
import pandas as pd
def read(project):
    return pd.read_csv(project / "data.csv")
def identity(project):
    return (project / "stamp").read_text()
def growth(project):
    return int((project / "stamp").read_text())
SOURCE = {row}
"""


def with_row(project: Project, row: str) -> Path:
    (project.folder / "source.py").write_text(ROW.format(row=row))
    project.spec_path.write_text(project.spec_path.read_text().replace("data.csv", "./source.py:SOURCE"))
    stamp = project.folder / "stamp"
    stamp.write_text("200")
    return stamp


@pytest.mark.parametrize(
    ("row", "rows", "text"),
    [
        ("{'read': read, 'identity': identity}", None, "./source.py:SOURCE has changed"),
        ("{'read': read, 'identity': identity, 'growth': growth}", 30, "./source.py:SOURCE: +30 rows"),
        ("{'read': read, 'growth': growth}", 30, "./source.py:SOURCE: +30 rows"),
    ],
)
def test_a_row_says_by_its_growth_or_its_identity_what_arrived(
    project: Project, row: str, rows: int | None, text: str
) -> None:
    stamp = with_row(project, row)
    read(project)
    assert found(project) is None
    stamp.write_text("230")
    grown = found(project)
    assert grown is not None
    assert (grown.rows, grown.text) == (rows, text)
    assert found(project) == grown
    read(project)
    assert found(project) is None


def test_a_row_that_says_nothing_is_not_asked(project: Project) -> None:
    stamp = with_row(project, "{'read': read}")
    read(project)
    stamp.write_text("230")
    assert found(project) is None
