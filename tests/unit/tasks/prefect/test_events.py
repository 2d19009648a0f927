"""Events wait on disk while no server answers, and each is delivered once, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from models.triggers.signal import Signal
from tasks.host.workspace import Workspace
from tasks.prefect import flow_runs
from tasks.prefect.events import BATCH, Event, change, deliver, of_signal, open_signals, send, waiting
from tests.event_receiver import Receiver, receiving
from tests.stored_events import stored_events


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def an_event(number: int = 0, name: str = "loopline.loop.ended") -> Event:
    return Event(name=name, project="tiny", text=f"event {number}", payload={"n": number}, at=1e9 + number)


def test_an_event_that_no_server_takes_waits_and_is_delivered_later_in_order(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not send(workspace, an_event(2))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert not send(workspace, an_event(1))
    assert waiting(workspace) == 2
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    assert deliver(workspace) == 2
    assert [event["payload"]["n"] for event in receiver.events] == [1, 2]
    assert waiting(workspace) == 0
    assert deliver(workspace) == 0


def test_the_same_thing_told_again_is_delivered_once(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    signal = Signal(id="s1", kind="new_data", at=1e9, reason="3 new rows")
    for later in range(3):
        assert send(workspace, of_signal("tiny", signal.model_copy(update={"at": 1e9 + later})))
    (event,) = receiver.events
    assert event["event"] == "loopline.data.arrived"
    assert event["resource"]["prefect.resource.id"] == "loopline.project.tiny"
    assert Signal.model_validate(event["payload"]["signal"]) == signal
    assert event["payload"]["text"] == "3 new rows"


def test_an_event_that_was_sent_is_not_sent_again_however_often_it_comes(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    send(workspace, an_event())
    monkeypatch.delenv("PREFECT_API_URL")
    assert send(workspace, an_event())
    assert len(receiver.events) == 1
    assert waiting(workspace) == 0


def test_signals_that_nothing_hears_yet_hold_back_no_other_events(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    receiver.deployed = False
    signals = [Signal(id=f"s{number}", kind="new_data", at=1e9, reason="rows") for number in range(BATCH + 1)]
    for signal in signals:
        send(workspace, of_signal("tiny", signal))
    send(workspace, an_event())
    assert [event["event"] for event in receiver.events] == ["loopline.loop.ended"]
    assert waiting(workspace) == len(signals)
    receiver.deployed = True
    assert deliver(workspace) == len(signals)
    assert deliver(workspace) == 0


def test_what_prefect_calls_wrong_is_laid_aside_and_stops_nothing(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.bad = {"wrong"}
    made = [an_event(number, "wrong" if number == 1 else "loopline.loop.ended") for number in range(4)]
    made = [event.model_copy(update={"payload": {"n": at, "signal": {"id": f"{at}"}}}) for at, event in enumerate(made)]
    for event in made:
        send(workspace, event)
    change(workspace, made, is_open=True)
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    deliver(workspace)
    assert [event["payload"]["n"] for event in receiver.events] == [0, 2, 3]
    (refused,) = stored_events(workspace, "refused")
    assert refused["name"] == "wrong"
    assert [event.payload["n"] for event, _ in open_signals(workspace)] == [0, 2, 3], "it is not asked again"
    assert waiting(workspace) == 0


def test_a_server_in_trouble_or_that_asks_for_a_key_gets_it_later(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    monkeypatch.setattr(flow_runs, "PAUSES_S", (0.01, 0.01))
    receiver.status = 503
    assert not send(workspace, an_event())
    receiver.status = 204
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "ada:secret")
    assert deliver(workspace) == 1
    assert receiver.headers[-1]["Authorization"].startswith("Basic ")


def test_many_senders_at_once_lose_and_repeat_nothing(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", receiver.url)
    threads = [
        threading.Thread(target=lambda n=n: [send(workspace, an_event(n * 10 + i)) for i in range(10)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deliver(workspace)
    assert sorted(event["payload"]["n"] for event in receiver.events) == list(range(40))
