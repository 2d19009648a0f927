"""What was moved in MLflow is heard, and what waits is carried there, in a real MLflow."""

import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from models.errors import GateRefused
from models.serving.registry import MLFLOW
from models.serving.registry_comparison import JOURNAL, MARK, MOVED_BY, OWNER, NamedMove, Projection
from tasks.host import database, server_access, tables
from tasks.host.workspace import Workspace
from tasks.loop.carry_moves import MoveCarrier, moved_in_mlflow
from tasks.loop.champion import open_registry
from tasks.mlflow.client import client
from tasks.mlflow.registry import Registry
from tasks.mlflow.registry_reader import registered
from tasks.prefect.events import CHAMPION_MOVED
from tasks.state import registered_models
from tasks.state.versions import version_of, versions_of
from tasks.state.workspace_id import workspace_id
from tests.conftest import MakeProject, Processes
from tests.event_receiver import receiving
from tests.mlflow_serving import serving
from tests.registered import register_served


@pytest.fixture
def registry(tracked: Workspace) -> Registry:
    """Three versions, of which the second is the champion."""
    for number in ("1", "2", "3"):
        register_served(tracked, "tiny", number)
    made = open_registry(tracked, "tiny")
    made.promote("1", None)
    made.promote("2", "1")
    return made


def events(workspace: Workspace) -> list[str]:
    with database.reading(workspace.state) as connection:
        rows = connection.scalars(select(tables.events.c.content).order_by(tables.events.c.number))
        return [row["text"] for row in rows]


def test_a_persons_move_in_mlflow_is_heard_once(tracked: Workspace, registry: Registry) -> None:
    """The model in MLflow says whose it is and which move it has."""
    tags, newest = registered("tiny").tags, registry.journal()[-1]
    assert (tags[OWNER], tags[MARK]) == (workspace_id(tracked.state), f"2:{newest.id}")
    client().set_registered_model_alias("tiny", "champion", "3")
    for _ in range(2):
        registry.look()
    assert [(move.by, move.before, move.after) for move in registry.journal()][2:] == [(MLFLOW, "2", "3")]
    assert registered("tiny").aliases["previous"] == "2"
    assert len(events(tracked)) == 3


KILLED = """
import functools, os, signal
from pathlib import Path
from tasks.host import stores
from tasks.host.workspace import Workspace
from tasks.loop.champion import on_move
from tasks.mlflow.registry import Announcer, Registry
workspace = Workspace(Path({root!r}))
stores.configure(workspace)
announcer = Announcer(functools.partial(on_move, "tiny"), lambda: os.kill(os.getpid(), signal.SIGKILL))
Registry(workspace, "tiny", announcer).promote("3", "2", loop_id="l")
"""


def test_a_loop_killed_between_its_move_and_the_delivery_sends_the_event_once(
    tracked: Workspace, registry: Registry, at_once: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("PREFECT_API_URL", receiver.url)
        registry.look()
        receiver.events.clear()
        (killed,) = at_once(KILLED.format(root=str(tracked.root)))
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-800:]
        assert (registry.champion().number, receiver.events) == ("3", [])
        for _ in range(2):
            assert open_registry(tracked, "tiny").promote("3", "2", loop_id="l") == registry.journal()[-1]
        (event,) = receiver.events
    assert (event["event"], event["payload"]["after"]) == (CHAMPION_MOVED, "3")
    assert len(registry.journal()) == 3


def test_where_promotions_go_through_loopline_alone_the_alias_is_set_back(
    tracked: Workspace, registry: Registry, make_project: MakeProject
) -> None:
    make_project("tiny", "judge: {promotion: loopline}\n")
    client().set_registered_model_alias("tiny", "champion", "3")
    for _ in range(2):
        registry.look()
    assert [(move.action, move.before, move.after) for move in registry.journal()][2:] == [("overruled", "2", "2")]
    assert registered("tiny").aliases["champion"] == "2"
    client().delete_model_version("tiny", "2")
    registry.look()
    assert registry.journal()[-1].action == "removed"
    assert events(tracked)[-1].startswith("removed: there is no champion (before: version 2): ")
    assert registry.champion() is None
    assert version_of(tracked.state, "tiny", "2") is None
    assert registry.rollback().after == "1"


def test_the_row_of_a_carrier_that_was_killed_after_the_mark_waits_no_more(
    tracked: Workspace, registry: Registry
) -> None:
    with database.writing(tracked.state) as connection:
        carried = registered_models.read(connection, "tiny")
        registered_models.save(connection, "tiny", replace(carried, number=1, alias="1"))
    assert registered_models.waiting(tracked.state) == ["tiny"]
    registry.look()
    assert registered_models.waiting(tracked.state) == []
    assert registered_models.projection_of(tracked.state, "tiny").alias == "2"


def test_a_tool_that_names_itself_is_the_actor(registry: Registry) -> None:
    named = NamedMove(version="1", actor="server a", reason="errors", action="rollback")
    client().set_registered_model_tag("tiny", MOVED_BY, named.model_dump_json())
    client().set_registered_model_alias("tiny", "champion", "1")
    registry.look()
    newest = registry.journal()[-1]
    assert (newest.action, newest.by, newest.reason) == ("rollback", "server a", "errors")
    assert MOVED_BY not in registered("tiny").tags


def test_mlflow_restored_from_a_copy_is_carried_again(tracked: Workspace, registry: Registry) -> None:
    folder = tracked.state / "mlflow"
    shutil.copytree(folder, tracked.root / "copy")
    registry.promote("3", "2")
    shutil.copytree(tracked.root / "copy", folder, dirs_exist_ok=True)
    registry.look()
    newest = registry.journal()[-1]
    assert (newest.action, newest.after) == ("overruled", "3")
    assert registered("tiny").aliases == {"champion": "3", "previous": "2"}
    assert events(tracked)[-1].startswith("overruled: the champion stays version 3: MLflow was restored")


def test_a_restored_database_gets_its_rows_back(tracked: Workspace, registry: Registry) -> None:
    copy = tracked.root / "state.db"
    with closing(sqlite3.connect(tracked.state / "state.db")) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    registry.promote("3", "2", reason="Better")
    moves = registry.journal()
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(tracked.state / "state.db")) as target:
        source.backup(target)
    assert len(registry.journal()) == 2
    with pytest.raises(GateRefused, match="the champion is version 3, not version 2"):
        registry.promote("1", "2")
    assert registry.journal() == moves


@pytest.mark.wide  # test_shared_registries.py
def test_a_model_of_another_workspace_is_refused_and_its_own_hears_the_move(
    tracked: Workspace, registry: Registry
) -> None:
    other = Workspace(tracked.root / "other")
    other.make()
    theirs = open_registry(other, "tiny")
    for act in (lambda: theirs.promote("1", None), theirs.rollback):
        with pytest.raises(GateRefused, match=r"belongs to another workspace.*loopline adopt tiny"):
            act()
    assert [(move.by, move.after) for move in theirs.journal()] == [(MLFLOW, "2")], "it follows"
    assert registered_models.projection_of(other.state, "tiny").owner == workspace_id(tracked.state)
    assert registered_models.waiting(other.state) == []


def test_the_journal_of_an_older_loopline_becomes_rows(tracked: Workspace) -> None:
    for number in ("1", "2"):
        register_served(tracked, "tiny", number)
    store = client()
    for number, before in (("1", None), ("2", "1")):
        move = {"number": int(number), "at": 5.0, "by": "h:1", "action": "promote", "before": before, "after": number}
        store.set_registered_model_tag("tiny", f"{JOURNAL}00000{number}", json.dumps(move))
        store.set_registered_model_alias("tiny", "champion", number)
    store.set_registered_model_alias("tiny", "previous", "1")
    store.delete_registered_model_tag("tiny", OWNER)
    with database.writing(tracked.state) as connection:
        connection.execute(tables.versions.delete())
        registered_models.save(connection, "tiny", Projection())
    assert registered_models.waiting(tracked.state) == ["tiny"]
    registry = open_registry(tracked, "tiny")
    registry.look()
    assert [(move.number, move.at, move.by, move.after) for move in registry.journal()] == [
        (1, 5.0, "h:1", "1"),
        (2, 5.0, "h:1", "2"),
    ]
    assert [version.number for version in versions_of(tracked.state, "tiny")] == ["1", "2"]
    assert registered_models.waiting(tracked.state) == []
    assert registered("tiny").tags[OWNER] == workspace_id(tracked.state)
    assert registry.rollback().after == "1"


def test_a_registered_model_that_was_renamed_leaves_the_champion_and_says_so(registry: Registry) -> None:
    client().rename_registered_model("tiny", "other")
    registry.look()
    assert "MLflow has no registered model of this name" in registry.carrier.trouble
    assert registry.champion().number == "2"
    client().rename_registered_model("other", "tiny")
    registry.look()
    assert registry.carrier.trouble == ""
    assert len(registry.journal()) == 2


def test_a_process_follows_what_waits_and_what_a_person_moves(
    tracked: Workspace, registry: Registry, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tracked) as (url, _):
        for name, value in server_access.credentials(tracked, {}).items():
            monkeypatch.setenv(name, value)
        assert moved_in_mlflow(tracked) == []
        client().set_registered_model_alias("tiny", "champion", "1")
        assert moved_in_mlflow(tracked) == ["tiny"], "the own server is asked, since it is awake"
        registry.look()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert moved_in_mlflow(tracked) == []
        client().set_registered_model_alias("tiny", "champion", "3")
        assert moved_in_mlflow(tracked) == ["tiny"]
        carrier = MoveCarrier(tracked)
        deadline = time.monotonic() + 60
        while len(registry.journal()) < 4 and time.monotonic() < deadline:
            carrier.once()
            time.sleep(0.2)
        assert registry.journal()[-1].by == MLFLOW
        while (carrier.process.is_running or moved_in_mlflow(tracked)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert moved_in_mlflow(tracked) == []
