"""A signal stays open until a decision holds it, and is asked again when Prefect lost it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from models.triggers.signal import Decision, Signal
from tasks.host import database
from tasks.host.tables import events as table
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.platform import open_signals
from tasks.platform.open_signals import FIRST_WAIT_S, ask_again, undecided
from tasks.prefect import events
from tasks.prefect.events import SIGNALS, of_signal, send


class Prefect:
    """What a server answers, and what was posted to it."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        hears = {"enabled": True, "trigger": {"expect": list(SIGNALS.values())}, "actions": [{"deployment_id": "tiny"}]}
        self.automations = [hears]

    def ask(self, _: str, path: str, body: Any, **__: Any) -> Any:
        if path == "events":
            self.posted += body
        return self.automations if path == "automations/filter" else []

    def run_of(self, signal: Signal, state: str, deployment: str = "tiny") -> None:
        run = {"parameters": {"signal": signal.model_dump()}, "state_type": state, "deployment_id": deployment}
        self.runs.append(run)


@pytest.fixture
def prefect(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Prefect:
    made = Prefect()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setattr(events, "ask", made.ask)
    monkeypatch.setattr(open_signals, "ask", made.ask)
    monkeypatch.setattr(open_signals, "all_runs", lambda *_: made.runs)
    monkeypatch.setattr(open_signals, "begin_again", lambda *_: [])
    return made


def a_signal(name: str = "person-1", at: float | None = None, kind: Any = "person") -> Signal:
    return Signal(id=name, kind=kind, at=time.time() if at is None else at, reason=f"{name} asks")


def decide(workspace: Workspace, signal: Signal) -> None:
    made = Decision(signal=signal, at=signal.at + 3, action="wait", reasons=["a loop runs now"])
    decisions.record(workspace.state / "projects" / "tiny", made)


def test_a_signal_is_open_until_a_decision_holds_it(workspace: Workspace, prefect: Prefect) -> None:
    signal = a_signal()
    assert send(workspace, of_signal("tiny", signal)), "Prefect has it"
    assert undecided(workspace, "tiny") == [signal]
    assert undecided(workspace, "other") == []
    decide(workspace, signal)
    assert undecided(workspace, "tiny") == []
    assert ask_again(workspace) == []
    assert events.open_signals(workspace) == []
    assert ask_again(workspace, time.time() + 9999) == []
    assert len(prefect.posted) == 1


def test_what_prefect_lost_is_asked_again_at_growing_intervals(workspace: Workspace, prefect: Prefect) -> None:
    begin = time.time()
    send(workspace, of_signal("tiny", a_signal(at=begin)))
    asked = []
    for minute in range(40):
        if ask_again(workspace, begin + 60 * minute + 30):
            asked.append(minute)
    assert asked == [2, 5, 11, 23]
    assert len({event["id"] for event in prefect.posted}) == 1 + len(asked), "Prefect takes an id once"
    assert {event["payload"]["signal"]["id"] for event in prefect.posted} == {"person-1"}


@pytest.mark.parametrize("state", ["SCHEDULED", "PENDING", "RUNNING", "PAUSED"])
def test_while_a_run_that_names_it_is_under_way_it_waits(workspace: Workspace, prefect: Prefect, state: str) -> None:
    signal = a_signal()
    send(workspace, of_signal("tiny", signal))
    prefect.run_of(signal, "CANCELLED")
    prefect.run_of(signal, state)
    assert ask_again(workspace, time.time() + 9999) == []
    assert undecided(workspace, "tiny") == [signal]


def test_the_run_of_another_project_that_names_the_same_id_is_not_its_own(
    workspace: Workspace, prefect: Prefect
) -> None:
    signal = a_signal()
    send(workspace, of_signal("tiny", signal))
    prefect.run_of(signal, "RUNNING", "other")
    assert "sent again" in ask_again(workspace, time.time() + 9999)[0]


@pytest.mark.parametrize("why", ["cancelled", "switched off", "not in the policy"])
def test_one_that_a_person_or_the_policy_does_not_want_is_closed(
    workspace: Workspace, prefect: Prefect, why: str
) -> None:
    signal = a_signal()
    send(workspace, of_signal("tiny", signal))
    if why == "cancelled":
        prefect.run_of(signal, "CANCELLED")
    elif why == "switched off":
        prefect.automations[0]["enabled"] = False
    else:
        prefect.automations[0]["trigger"] = {"expect": [SIGNALS["drift"]]}
    assert "closed" in ask_again(workspace, time.time() + 9999)[0]
    assert undecided(workspace, "tiny") == []
    assert len(prefect.posted) == 1


def test_signals_of_one_storm_are_decided_together_and_later_ones_are_not(
    workspace: Workspace, prefect: Prefect
) -> None:
    first, same = a_signal(at=1e9), a_signal("person-2", 1e9 + 2)
    later, other = a_signal("person-3", 1e9 + 60), a_signal("data-1", 1e9, "new_data")
    for signal in (first, same, later, other):
        send(workspace, of_signal("tiny", signal))
    decide(workspace, first)
    assert undecided(workspace, "tiny") == [other, later]


def test_one_that_prefect_has_not_taken_yet_waits_in_the_queue(
    workspace: Workspace, prefect: Prefect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL")
    signal = a_signal()
    assert not send(workspace, of_signal("tiny", signal))
    assert undecided(workspace, "tiny") == [signal]
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert ask_again(workspace, time.time() + FIRST_WAIT_S + 1) == []
    assert prefect.posted == []


def store(workspace: Workspace, number: int, content: object) -> None:
    row = {"id": f"other-{number}", "project": "tiny", "content": content, "state": "waiting", "is_open": True}
    with database.writing(workspace.state) as connection:
        connection.execute(table.insert().values(**row))


SIGNAL = {"id": "new-1", "kind": "person", "at": 1e9, "reason": "it is Monday"}
EVENT = {"name": "loopline.person.asked", "project": "tiny", "text": "it is Monday", "at": 1e9}
UNKNOWN = [
    {**EVENT, "payload": {"signal": SIGNAL}, "priority": 3},
    {**EVENT, "payload": {"signal": "new-1"}},
    {**EVENT, "payload": {"signal": {"kind": "person"}}},
    {**EVENT, "payload": {}},
    {**EVENT, "payload": None},
    [1],
    None,
]


def test_events_of_another_loopline_delay_no_other(workspace: Workspace, prefect: Prefect) -> None:
    for number in range(10 * len(UNKNOWN)):  # more than one batch
        store(workspace, number, UNKNOWN[number % len(UNKNOWN)])
    signal = a_signal()
    send(workspace, of_signal("tiny", signal))
    assert [event["payload"].get("signal") for event in prefect.posted if event["payload"].get("signal")] == [
        signal.model_dump()
    ]
    assert undecided(workspace, "tiny") == [signal]
    assert "sent again" in ask_again(workspace, time.time() + 9999)[0]


def test_a_signal_of_an_unknown_kind_is_delivered_as_it_is_until_it_is_decided(
    workspace: Workspace, prefect: Prefect
) -> None:
    sent = {**SIGNAL, "kind": "weather"}
    store(workspace, 0, {**EVENT, "payload": {"signal": sent}})
    events.deliver(workspace)
    assert [event["payload"]["signal"] for event in prefect.posted] == [sent]
    (unknown,) = undecided(workspace, "tiny")
    assert (unknown.id, unknown.kind, unknown.reason) == ("new-1", "unknown", "it is Monday")
    decide(workspace, unknown)
    assert undecided(workspace, "tiny") == ask_again(workspace) == []
