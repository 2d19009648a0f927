"""Prepare: the raw table becomes the prepared folder, whole or not at all."""

import pytest

from models.data.preparation import Preparation
from models.errors import DataError
from models.pipeline.records import StepRecord
from tasks.host.workspace import Project
from tasks.loop.lifecycle import open_stage
from tasks.steps.ingest import ingest
from tasks.steps.prepare import prepare
from tests.conftest import MakeProject


def prepared(project: Project) -> tuple[StepRecord, bool]:
    with open_stage(project) as loop:
        ingest(loop)
        return prepare(loop)


def test_rows_and_schema_are_made_once(make_project: MakeProject) -> None:
    project = make_project()
    record, was_done = prepared(project)
    assert not was_done
    assert {path.name for path in project.prepared.iterdir()} == {"rows.parquet", "preparation.json"}
    assert sum(record.result["rows"].values()) == 200
    assert record.result["task"] == Preparation.load(project.prepared).task == "binary"
    assert prepared(project) == (record, True)


def test_a_change_of_the_split_prepares_again_without_reading_the_source(make_project: MakeProject) -> None:
    project = make_project()
    first, _ = prepared(project)
    project.spec_path.write_text(project.spec_path.read_text() + "  split: {seed: 3}\n")
    with open_stage(project) as loop:
        _, raw_was_done = ingest(loop)
        second, was_done = prepare(loop)
    assert raw_was_done
    assert not was_done
    assert second.digest != first.digest


def test_one_class_only_is_refused_and_nothing_is_left(make_project: MakeProject) -> None:
    project = make_project(rows="x,c,y\n" + "".join(f"{i},u,yes\n" for i in range(50)))
    with pytest.raises(DataError, match="yes"):
        prepared(project)
    assert not project.prepared.exists()
