"""The latest monitoring report: of this machine, or of any that shares the state database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.state.findings import FINDINGS_FILE, load, save
from tests.unit.models.serving.test_auto_rollback import findings, window


@pytest.fixture
def state(workspace: Workspace) -> Path:
    folder = workspace.state / "projects" / "tiny"
    (folder / FINDINGS_FILE).parent.mkdir(parents=True)
    return folder


def test_the_file_is_read_and_one_of_another_format_is_none(state: Path, workspace: Workspace) -> None:
    assert load(state) is None
    save(state, findings(window("1", 1, False)))
    assert load(state) == findings(window("1", 1, False))
    assert database.is_absent(workspace.state)
    (state / FINDINGS_FILE).write_text('{"version": 99}')
    assert load(state) is None


def test_with_a_shared_database_the_latest_of_all_machines_is_read(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(state, findings(window("1", 1, False)))
    with database.writing(state.parents[1]):
        pass
    monkeypatch.setattr(database, "is_shared", lambda: True)
    monkeypatch.setattr(database, "address", lambda root: f"sqlite:///{root / database.FILE}")
    assert load(state) is None
    for decayed in (False, True):
        save(state, findings(window("2", 1, decayed)))
    (state / FINDINGS_FILE).unlink()
    assert load(state) == findings(window("2", 1, True))
