"""`loopline doctor --restored`: a copy of the state database becomes whole again by what MLflow holds."""

import functools
import itertools
import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli import loopline
from models.errors import LeaseLostError
from tasks.host.leases import leased
from tasks.host.locks import held
from tasks.host.workspace import Workspace
from tasks.loop.champion import open_registry
from tasks.loop.history import LOOP_LOCK
from tasks.mlflow.registry import Registry
from tasks.operations import after_restore
from tasks.state.champion_moves import champion_of
from tasks.state.versions import versions_of
from tests.clean_process import CleanProcess
from tests.registered import register_served
from tests.wide import wide


def copied(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as first, closing(sqlite3.connect(target)) as second:
        first.backup(second)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(loopline, ["doctor", "--restored", *arguments])


@pytest.fixture
def registry(tracked: Workspace) -> Registry:
    """Version 2 was registered and promoted after the copy that the state database is; so was another project."""
    state = tracked.state / "state.db"
    register_served(tracked, "tiny", "1")
    made = open_registry(tracked, "tiny")
    made.promote("1", None)
    copied(state, tracked.root / "copy.db")
    register_served(tracked, "tiny", "2")
    made.promote("2", "1", reason="Better")
    register_served(tracked, "later", "1")
    open_registry(tracked, "later").promote("1", None)
    copied(tracked.root / "copy.db", state)
    return made


def test_rows_newer_than_the_copy_are_read_back_once(tracked: Workspace, registry: Registry) -> None:
    folder = tracked.state / "projects" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / LOOP_LOCK, lambda: "busy"):
        refused = doctor()
    assert str(refused.exception) == "tiny: a loop runs: wait for it, or end it; nothing was changed"
    assert [move.after for move in registry.journal()] == ["1"]
    first = doctor("--json")
    assert first.exit_code == 0, first.output
    findings = {finding["what"]: finding["detail"] for finding in json.loads(first.output)}
    assert findings["tiny"] == "read from MLflow: move 2, 1 version; the champion is version 2"
    assert findings["later"] == "read from MLflow: move 1, 1 version; the champion is version 1"
    whole = registry.journal()
    assert [(move.number, move.after, move.reason) for move in whole][1:] == [(2, "2", "Better")]
    assert [version.number for version in versions_of(tracked.state, "tiny")] == ["1", "2"]
    champion = champion_of(tracked.state, "tiny")
    assert champion is not None
    assert champion.tags, "the row of the version, which its server loads by"
    again = doctor()
    assert "tiny          read from MLflow: no move, no version; the champion is version 2" in again.output
    assert registry.journal() == whole
    assert registry.promote("1", "2").number == 3


def test_rows_that_are_read_back_by_themselves_are_whole_and_end_no_lease(
    tracked: Workspace, registry: Registry
) -> None:
    with leased(tracked.state, "loop:other") as living:
        registry.look()
        assert len(registry.journal()) == 2
        living.confirm()
    assert [version.number for version in versions_of(tracked.state, "tiny")] == ["1", "2"]


def mend_and_die(projects: int) -> None:
    mended, read = itertools.count(), after_restore._project

    def dying(workspace: Workspace, model: str) -> after_restore.Finding:
        if next(mended) == projects:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(workspace, model)

    after_restore._project = dying
    doctor()


@pytest.mark.parametrize("projects", [wide(0), 1])
def test_who_was_killed_after_some_projects_ends_the_rest_when_called_again(
    tracked: Workspace, registry: Registry, tmp_path: Path, projects: int
) -> None:
    """The leases ended first, so between the two calls no holder of before acts."""
    with leased(tracked.state, "mlflow:tiny") as old:
        with pytest.raises(AssertionError, match=f"exit code -{signal.SIGKILL:d}"):
            CleanProcess(tmp_path / "killed", functools.partial(mend_and_die, projects)).result()
        with pytest.raises(LeaseLostError):
            old.confirm()
    with leased(tracked.state, "mlflow:tiny") as new:
        assert new.epoch > old.epoch + 1000
    again = doctor()
    assert again.exit_code == 0, again.output
    assert [move.after for move in registry.journal()] == ["1", "2"]
    assert [move.after for move in open_registry(tracked, "later").journal()] == ["1"]


def test_while_mlflow_is_away_it_says_what_is_left(
    tracked: Workspace, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = doctor()
    assert away.exit_code == 1
    assert "were not read for tiny: start it, then run `loopline doctor --restored` again" in away.output
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert doctor().exit_code == 0
    assert len(registry.journal()) == 2


def test_without_a_database_it_asks_for_the_copy(tracked: Workspace) -> None:
    assert "expected the copy: put it back first" in str(doctor().exception)
