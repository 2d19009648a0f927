"""A store that lost what was registered in it is refused, and nothing is written in its place."""

import os
import shutil
from pathlib import Path

import pytest

from models.errors import GateRefused, StoreError
from models.pipeline.records import StepRecord
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.mlflow import embedded_store
from tasks.mlflow.client import client
from tasks.mlflow.lost_store import refuse_lost
from tasks.state.champion_moves import champion_of
from tasks.state.registered_models import projection_of
from tasks.state.step_records import StepRecords
from tests.serving import register

LOST = "mlflow.db: holds nothing of tiny, whose version 3 was registered there: .* Put it back from a copy"


def record_version(workspace: Workspace, store: str = "own") -> None:
    """Record that version 3 of tiny was registered in a store."""
    result = {"version": "3", "store": store}
    record = StepRecord(step="register", key="k", parts={}, digest="d", result=result, loop_id="l", finished=1.0)
    StepRecords(workspace.state / "projects" / "tiny", workspace.root).save(record)


@pytest.fixture
def database(workspace: Workspace) -> Path:
    return stores.database_file(os.environ["MLFLOW_TRACKING_URI"])


@pytest.fixture
def stored(workspace: Workspace, empty_store: Path, database: Path) -> Path:
    """The file of an empty store."""
    shutil.copytree(empty_store, workspace.state / "mlflow")
    return database


def test_a_store_without_the_project_was_emptied(workspace: Workspace, stored: Path) -> None:
    """One that only lost the version was not: a person deletes those in MLflow."""
    refuse_lost(workspace, "tiny")
    record_version(workspace)
    with pytest.raises(StoreError, match=LOST):
        refuse_lost(workspace, "tiny")
    client().create_experiment("tiny")
    refuse_lost(workspace, "tiny")


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_file_that_is_missing_or_empty_is_not_made_anew(
    workspace: Workspace, database: Path, content: bytes | None
) -> None:
    """Neither by a loop, nor by a rollback, which goes on without MLflow."""
    record_version(workspace)
    if content is not None:
        database.parent.mkdir(parents=True)
        database.write_bytes(content)
    for number in ("1", "3"):
        register(workspace, "tiny", number, {}, workspace.root, "champion")
    with pytest.raises(StoreError, match=LOST):
        refuse_lost(workspace, "tiny")
    with pytest.raises(StoreError, match=LOST):
        embedded_store.initialise(workspace)
    open_registry(workspace, "tiny").rollback("it fails")
    assert champion_of(workspace.state, "tiny").number == "1"
    assert "Put it back from a copy" in projection_of(workspace.state, "tiny").trouble
    assert (database.read_bytes() if database.exists() else None) == content


def test_a_damaged_file_is_refused_with_the_cure_and_a_rollback_goes_on(workspace: Workspace, database: Path) -> None:
    record_version(workspace)
    database.parent.mkdir(parents=True)
    database.write_bytes(b"no database " * 1000)
    for number in ("1", "3"):
        register(workspace, "tiny", number, {}, workspace.root, "champion")
    with pytest.raises(StoreError, match="it is damaged: put it back from a copy"):
        refuse_lost(workspace, "tiny")
    open_registry(workspace, "tiny").rollback("it fails")
    assert champion_of(workspace.state, "tiny").number == "1"
    assert "it is damaged" in projection_of(workspace.state, "tiny").trouble
    with pytest.raises(GateRefused):
        open_registry(workspace, "tiny").rollback("it fails", expected="3")


def test_a_store_elsewhere_that_is_away_is_not_lost(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    record_version(workspace, "http://elsewhere")
    refuse_lost(workspace, "tiny")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    record_version(workspace, "http://127.0.0.1:1")
    refuse_lost(workspace, "tiny")
