"""Data and studies follow the records that named them, and go when no other row of the workspace names them."""

from __future__ import annotations

import optuna
import pytest

from tasks.gc import datasets, rows
from tasks.gc.snapshot import take
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.tools import dvc_garbage
from tasks.tools.optuna_study import storage
from tests.past_loops import add_loop, crown, record_names


def test_what_no_row_names_any_more_goes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[set[str]] = []
    monkeypatch.setattr(dvc_garbage, "remove", lambda project, unneeded, needed: removed.append(unneeded - needed))
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
