"""What a loop reports is recorded for its page; a request to stop it reaches its process once, and no later attempt."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.prefect import sigterm
from models.errors import LeaseLostError
from tasks.host.workspace import Workspace
from tasks.loop.loop import SilentReporter
from tasks.loop.recording import STOP_SIGNAL, RecordingReporter, StopRequests
from tasks.state.outbox import Outbox


@pytest.fixture
def state(tmp_path: Path) -> Path:
    workspace = Workspace(tmp_path)
    workspace.make()
    return workspace.state / "projects" / "tiny"


@pytest.fixture
def box(state: Path) -> Outbox:
    return Outbox(state, "tiny-1")


@pytest.fixture
def stoppable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sigterm, "_end", lambda _: None)  # the tests' process goes on
    with sigterm.stoppable(STOP_SIGNAL):
        yield


def test_reports_are_recorded_and_quick_progress_is_thinned_out(box: Outbox) -> None:
    reporter = RecordingReporter(SilentReporter(), box)
    reporter.step("train", "run")
    for epoch in range(1, 51):
        reporter.progress("train", epoch, 50)
    reporter.note("a note")
    lines = [(line["state"], line["count"], line["text"]) for line in box.lines().values()]
    assert lines[0] == ("run", 0, "")
    assert lines[-2:] == [("progress", 50, ""), ("note", 0, "a note")]
    assert 4 <= len(lines) < 20


def test_a_report_without_a_lease_ends_nothing(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise LeaseLostError("another machine")

    monkeypatch.setattr(box, "_write", lost)
    RecordingReporter(SilentReporter(), box).note("goes on")


@pytest.mark.usefixtures("stoppable")
def test_a_request_interrupts_the_process_as_ctrl_c_does(box: Outbox) -> None:
    box.request_stop("before this attempt", is_signal=True)
    requests = StopRequests(box)
    box.request_stop("Prefect cancels it", is_signal=False)
    box.request_stop("Ada", is_signal=True)
    with requests, pytest.raises(KeyboardInterrupt, match="a person stopped it on its page"):
        time.sleep(30)


def test_a_process_that_does_not_handle_the_signal_is_left_alone(box: Outbox) -> None:
    assert signal.getsignal(STOP_SIGNAL) is signal.SIG_DFL
    with StopRequests(box):
        assert "loopline-stop" not in {thread.name for thread in threading.enumerate()}
