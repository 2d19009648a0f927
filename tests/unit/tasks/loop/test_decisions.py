"""Every decision is kept, and a flow run that is run again finds its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.triggers.signal import Action, Decision, Signal
from tasks.host import database
from tasks.host.tables import decisions
from tasks.host.workspace import Workspace
from tasks.loop.decisions import concerning, newest, of_flow_run, read, record


@pytest.fixture
def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


def a_decision(name: str, action: Action = "wait", flow_run: str | None = None) -> Decision:
    signal = Signal(id=name, kind="decay", at=1.0, reason="lower", evidence={"value": 0.7})
    return Decision(signal=signal, at=2.0, action=action, reasons=["cooldown"], flow_run=flow_run)


def test_decisions_come_back_as_they_were_oldest_first(state: Path) -> None:
    made = [a_decision("a"), a_decision("b", "retrain")]
    for decision in made:
        record(state, decision)
    assert read(state) == made
    assert newest(state.parents[1], ["tiny", "none"], 1) == {"tiny": made[1:]}
    assert newest(state.parents[1], ["tiny"], 2) == {"tiny": made[::-1]}
    assert newest(state.parents[1], [], 2) == {}
    assert read(state.parent / "none") == []


def test_a_flow_run_finds_what_it_decided_last(state: Path) -> None:
    record(state, a_decision("a", "ask", "run-1"))
    record(state, a_decision("b", "wait", "run-2"))
    record(state, a_decision("a", "retrain", "run-1"))
    found = of_flow_run(state, "run-1")
    assert found is not None
    assert found.action == "retrain"
    assert of_flow_run(state, "run-3") is None


def test_a_row_of_an_unknown_form_is_shown_with_its_cure_and_the_others_are_read(state: Path) -> None:
    record(state, a_decision("a"))
    row = {"project": "tiny", "signal": "b", "at": 3.0, "action": "defer", "content": {"new": 1}, "flow_run": "run-9"}
    with database.writing(state.parents[1]) as connection:
        connection.execute(decisions.insert(), row)
    first, unknown = read(state)
    assert first == a_decision("a")
    assert (unknown.signal.id, unknown.signal.kind, unknown.at, unknown.action) == ("b", "unknown", 3.0, "wait")
    (reason,) = unknown.reasons
    assert reason.startswith("defer: row 2 of the table `decisions` has an unknown form: update Loopline, or delete")
    assert newest(state.parents[1], ["tiny"], 1) == {"tiny": [unknown]}
    assert concerning(state.parents[1], {"tiny": [unknown.signal]}) == {"tiny": [unknown]}
    assert of_flow_run(state, "run-9") == unknown
