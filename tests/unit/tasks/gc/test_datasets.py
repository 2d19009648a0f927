"""Data and studies follow the records that named them, and go when no other row of the workspace names them."""

from __future__ import annotations

import optuna
import pytest

from tasks.gc import datasets, rows
from tasks.gc.candidates import GarbageCandidate
from tasks.gc.retention import DVC_REMOTE
from tasks.gc.snapshot import take
from tasks.host import database
from tasks.host.tables import versions
from tasks.host.workspace import Project, Workspace
from tasks.tools import dvc_garbage
from tasks.tools.optuna_study import storage
from tests.past_loops import add_loop, crown, record_names


def test_what_no_row_names_any_more_goes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[set[str]] = []

    def remove(_: Project, unneeded: set[str], needed: set[str], *, from_remote: bool) -> set[str]:
        assert not from_remote
        removed.append(unneeded - needed)
        return unneeded - needed

    monkeypatch.setattr(dvc_garbage, "remove", remove)
    stored = storage(workspace)
    for number, days in enumerate((200, 150, 1), 1):
        add_loop(workspace, "tiny", number, days, version=number == 1, folders=False)
        optuna.create_study(study_name=f"tiny-study{number}", storage=stored)
    crown(workspace, "tiny", "1")
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    data = {found.name: found.reason for found in datasets.old_data(snapshot)}
    assert [name for name, reason in data.items() if not reason] == ["prepared2.dir", "raw2.dir"]
    assert [found.name for found in datasets.old_studies(snapshot) if not found.reason] == ["tiny-study2"]
    chosen = [found for found in rows.step_records(snapshot) if not found.reason]
    with database.writing(workspace.state) as connection:
        rows.withdraw_records(connection, "tiny", chosen)
    datasets.remove_data(snapshot, [])
    datasets.remove_studies(snapshot, [])
    assert removed == [{"prepared2.dir", "raw2.dir"}]
    assert sorted(study.study_name for study in storage(workspace).get_all_studies()) == ["tiny-study1", "tiny-study3"]
    assert not [name for name in record_names(workspace) if name.endswith("-2")]
    datasets.remove_data(snapshot, [])
    assert len(removed) == 1


def test_data_that_a_lock_file_names_waits_for_it(workspace: Workspace) -> None:
    add_loop(workspace, "tiny", 1, 200, folders=False)
    add_loop(workspace, "tiny", 2, 1, folders=False)
    lock = workspace.root / "dvc.lock"
    lock.write_text("    md5: raw1.dir\n")
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    assert {found.name: found.reason for found in datasets.old_data(snapshot)}["raw1.dir"] == "dvc.lock names it"
    with database.writing(workspace.state) as connection:
        rows.withdraw_records(connection, "tiny", [found for found in rows.step_records(snapshot) if not found.reason])
        connection.execute(versions.delete().where(versions.c.version == "1"))
    datasets.remove_data(snapshot, [])
    waiting = take(workspace, ["tiny"], {}, {"tiny": {}})
    assert "gc:version tiny-1" in record_names(workspace), "else nobody would find the data later"
    assert {found.name: found.reason for found in datasets.old_data(waiting)}["raw1.dir"] == "dvc.lock names it"
    lock.write_text("")
    assert {found.name: found.reason for found in datasets.old_data(waiting)}["raw1.dir"] == ""
    datasets.remove_data(waiting, [])
    assert "gc:version tiny-1" not in record_names(workspace)


def test_data_at_a_remote_stays_unless_nobody_else_uses_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_loop(workspace, "tiny", 1, 200, version=False, folders=False)
    add_loop(workspace, "tiny", 2, 1, folders=False)
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    assert list(datasets.remote_data(snapshot)) == []
    (workspace.root / ".dvc").mkdir()
    (workspace.root / ".dvc" / "config").write_text("[core]\n    remote = far\n")
    shared = {found.name: found.reason for found in datasets.remote_data(snapshot)}
    assert shared["raw1.dir"].startswith("others may use DVC's remote: LOOPLINE_DVC_REMOTE=own")
    monkeypatch.setenv(DVC_REMOTE, "own")
    own = {found.name: found.reason for found in datasets.remote_data(snapshot)}
    assert own["raw1.dir"] == ""
    assert own["raw2.dir"]


def test_data_that_a_version_still_names_is_found_when_the_version_goes(workspace: Workspace) -> None:
    add_loop(workspace, "tiny", 1, 200, folders=False)
    with database.writing(workspace.state) as connection:
        chosen = [GarbageCandidate("tiny", "version 3", 0, "")]
        rows.withdraw_records(connection, "tiny", chosen)
    snapshot = take(workspace, ["tiny"], {}, {"tiny": {}})
    datasets.remove_data(snapshot, [])
    assert "gc:version tiny-1" in record_names(workspace)
    with database.writing(workspace.state) as connection:
        connection.execute(versions.delete())
    datasets.remove_data(snapshot, [])
    assert "gc:version tiny-1" not in record_names(workspace)
