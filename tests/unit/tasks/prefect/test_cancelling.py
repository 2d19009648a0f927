"""A run of the command line that a person cancels on Prefect's page ends, and is cancelled there."""

import signal
import threading
from typing import Any

import pytest

from models.errors import StoreError
from tasks.prefect import cancelling
from tasks.prefect.cancelling import CancelWatch


def test_a_cancelled_run_is_interrupted_and_told_to_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [StoreError("away"), [], [{"id": "r-1"}]]
    states: list[tuple[str, str]] = []
    heard = threading.Event()

    def all_runs(_: str, query: Any) -> Any:
        assert query["flow_runs"]["tags"] == {"all_": ["host:1"]}
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cancelling, "LOOK_S", 0.001)
    monkeypatch.setattr(cancelling, "all_runs", all_runs)
    monkeypatch.setattr(cancelling, "ask", lambda _, path, body, **__: states.append((path, body["state"]["type"])))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:
        with CancelWatch("host:1", signal.SIGUSR1):
            assert heard.wait(10)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert states == [("flow_runs/r-1/set_state", "CANCELLED")]
    assert answers == []


def test_a_run_that_nobody_cancels_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "all_runs", lambda *_: pytest.fail("asked within an instant"))
    monkeypatch.setattr(cancelling, "ask", lambda *_, **__: pytest.fail("told of a cancel"))
    with CancelWatch("host:1", signal.SIGUSR1):
        pass
