"""What a tool lacks is counted from when it began to wait, and is gone once it was carried."""

from pathlib import Path

import pytest

from models.report.facts import Lag
from models.serving.registry_comparison import Projection
from tasks.host import database
from tasks.host.tables import events
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.prefect.events import Event, store
from tasks.state import champion_moves, registered_models
from tasks.state.lags import lags
from tasks.state.outbox import LOOP_RUN, Delivered, Outbox, set_delivered
from tasks.state.workspace_id import workspace_id


@pytest.fixture
def root(workspace: Workspace) -> Path:
    workspace.make()
    return workspace.state


def promote(root: Path, version: str) -> None:
    with database.writing(root) as connection:
        number = len(champion_moves.read(connection, "tiny"))
        champion_moves.record(
            connection, "tiny", number, action="promote", before=None, after=version, by="test", reason="test"
        )


def test_a_workspace_that_waits_for_nothing(root: Path) -> None:
    assert lags(root) == []


def test_logs_of_ended_loops(root: Path) -> None:
    state = root / "projects" / "tiny"
    for number in (1, 2):
        save_loop(state, LoopRecord(f"tiny-{number}", "killed", began=float(number)))
        Outbox(state, f"tiny-{number}").start_run(LOOP_RUN, "tiny", {})
    assert lags(root) == [Lag("MLflow", "logs", "tiny", 2, 1.0)]
    set_delivered(state, "tiny-1", Delivered(max(Outbox(state, "tiny-1").lines()), {}))
    assert lags(root) == [Lag("MLflow", "logs", "tiny", 1, 2.0)]


def test_events(root: Path) -> None:
    with database.writing(root) as connection:
        for at in (7.0, 8.0):
            store(connection, Event(name="loopline.loop.ended", project="tiny", text=str(at), at=at))
    assert lags(root) == [Lag("Prefect", "events", "tiny", 2, 7.0)]
    with database.writing(root) as connection:
        connection.execute(events.update().values(state="sent"))
    assert lags(root) == []


def test_moves_of_champions(root: Path) -> None:
    own_id = workspace_id(root)
    with database.writing(root) as connection:
        registered_models.save(connection, "tiny", Projection(owner=own_id, looked=1.0))
    promote(root, "1")
    promote(root, "2")
    (lag,) = lags(root)
    assert (lag.tool, lag.rows, lag.num_rows) == ("MLflow", "moves", 2)
    assert 0 <= lag.seconds < 60
    with database.writing(root) as connection:
        registered_models.save(connection, "tiny", Projection(owner=own_id, number=2, looked=1.0))
    assert lags(root) == []


def test_moves_of_a_model_of_another_workspace_are_not_carried_from_here(root: Path) -> None:
    with database.writing(root) as connection:
        registered_models.save(connection, "tiny", Projection(owner="another", looked=1.0))
    promote(root, "1")
    assert lags(root) == []
