"""Rows go when the other tool has had them for long, and no number is given twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from models.triggers.signal import Signal
from tasks.gc import rows
from tasks.gc.candidates import GarbageCandidate
from tasks.gc.snapshot import take
from tasks.host import database
from tasks.host.tables import deliveries
from tasks.host.workspace import Workspace
from tasks.prefect.events import Event, change, of_signal, open_signals, send
from tasks.state.outbox import Delivered, Outbox, set_delivered, undelivered
from tests.stored_events import stored_events

NAME, DAY_S = "tiny", 86400.0


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / NAME


def garbage(found: list[GarbageCandidate]) -> list[GarbageCandidate]:
    return [candidate for candidate in found if not candidate.reason]


def test_lines_that_mlflow_has_go_in_time(workspace: Workspace, state: Path) -> None:
    whole, waiting, untouched = (Outbox(state, name) for name in ("whole", "waiting", "untouched"))
    for box in (whole, waiting, untouched):
        box.start_run("loop", "tiny-1", {"a": "b"})
        box.params("loop", {"lr": 0.1})
    set_delivered(state, "whole", Delivered(max(whole.lines()), {"loop": "abc"}))
    set_delivered(state, "waiting", Delivered(min(waiting.lines()), {"loop": "def"}))
    snapshot = take(workspace, [NAME], {}, {})
    assert not garbage(list(rows.delivered_lines(snapshot)))
    with database.writing(workspace.state) as connection:
        connection.execute(deliveries.update().values(at=time.time() - 15 * DAY_S))
    (old,) = garbage(list(rows.delivered_lines(snapshot)))
    assert old.name == "whole"
    assert old.size > 50
    with database.writing(workspace.state) as connection:
        rows.withdraw_lines(connection, NAME, [old, old._replace(name="waiting")])
    assert [len(box.lines()) for box in (whole, waiting, untouched)] == [0, 1, 2], "what MLflow lacks stays"
    whole.tags("loop", {"after": "wards"})
    assert undelivered(state) == ["untouched", "waiting", "whole"], "no number is given twice"


def test_old_events_go_but_no_open_signal_and_none_that_waits(workspace: Workspace) -> None:
    signal = of_signal(NAME, Signal(id="s1", kind="new_data", at=1e9, reason="3 new rows"))
    sent = [Event(name="loopline.loop.ended", project=NAME, text=str(number)) for number in range(3)]
    for event in (signal, *sent):
        send(workspace, event)
    old = time.time() - 91 * DAY_S
    change(workspace, [signal, *sent[:1]], state="sent", sent=old)
    change(workspace, sent[1:2], state="sent", sent=time.time())
    snapshot = take(workspace, [NAME], {}, {})
    (chosen,) = garbage(list(rows.past_events(snapshot)))
    with database.writing(workspace.state) as connection:
        rows.withdraw_events(connection, NAME, [chosen])
    assert len(open_signals(workspace)) == 1
    assert [event["text"] for event in stored_events(workspace, "sent")] == ["3 new rows", "1"]
    assert [event["text"] for event in stored_events(workspace)] == ["2"]
