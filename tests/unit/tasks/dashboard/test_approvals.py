"""An answer reaches the run that waits, also while Prefect is busy, and a wish waits on disk while it is away."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from models.errors import StoreError
from models.report.facts import PendingApproval
from tasks.dashboard.approvals import answer, request_retraining, stop_loop
from tasks.host.workspace import Workspace
from tasks.prefect import flow_runs
from tasks.prefect.events import waiting as events_waiting
from tasks.state.outbox import Outbox

RUN = "6f9619ff-8b86-4011-b42d-00c04fc964ff"
QUESTION = PendingApproval(flow_run=RUN, reason="rows came", since=0, until=9)


class Prefect(BaseHTTPRequestHandler):
    """Answers what it was told to, in turn, and keeps what it was asked."""

    answers: list[tuple[int, dict[str, Any]]]
    asked: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        self.asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        status, body = self.answers.pop(0)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Prefect]]:
    monkeypatch.setattr(flow_runs, "PAUSES_S", (0.0, 0.0))
    Prefect.answers, Prefect.asked = [], []
    with HTTPServer(("127.0.0.1", 0), Prefect) as server:
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_port}/api")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Prefect
        server.shutdown()
        thread.join()


def test_a_busy_server_is_asked_again(workspace: Workspace, prefect: type[Prefect]) -> None:
    prefect.answers += [(503, {}), (503, {}), (201, {"status": "ACCEPT"})]
    told = answer(workspace, QUESTION, approved=True, comment="go on")
    assert (told.done, len(prefect.asked)) == (True, 3)
    path, body = prefect.asked[-1]
    assert path == f"/api/flow_runs/{RUN}/resume"
    assert body["run_input"] == {"approve": True, "name": "a person on the overview page", "comment": "go on"}


def test_a_run_that_takes_no_answer_says_why(workspace: Workspace, prefect: type[Prefect]) -> None:
    prefect.answers += [(201, {"status": "ABORT", "details": {"reason": "Cannot resume: not paused."}})]
    told = answer(workspace, QUESTION, approved=False, comment="")
    assert not told.done
    assert "not paused" in told.text


def test_a_server_that_stays_busy_or_errs_is_told(workspace: Workspace, prefect: type[Prefect]) -> None:
    tries = len(flow_runs.PAUSES_S) + 1
    prefect.answers += [(503, {})] * tries + [(404, {})]
    assert "did not reach the run" in answer(workspace, QUESTION, approved=True, comment="").text
    assert len(prefect.asked) == tries
    assert "404" in answer(workspace, QUESTION, approved=True, comment="").text


def test_what_is_no_run_is_never_asked_for(workspace: Workspace, prefect: type[Prefect]) -> None:
    odd = QUESTION.model_copy(update={"flow_run": "../../admin"})
    assert not answer(workspace, odd, approved=True, comment="").done
    assert prefect.asked == []


def test_while_the_platform_is_down_a_wish_waits_and_an_answer_does_not(workspace: Workspace) -> None:
    signal, taken = request_retraining(workspace, "flights", "the season changed", "batch-7")
    again, _ = request_retraining(workspace, "flights", "the season changed", "batch-7")
    assert (signal.id, again.id, taken) == ("person-batch-7", "person-batch-7", False)
    assert events_waiting(workspace) == 1
    assert "loopline up" in answer(workspace, QUESTION, approved=True, comment="").text


@pytest.mark.parametrize(
    ("deployment", "status", "is_signal"),
    [(None, "", True), ("d1", "ACCEPT", False), ("d1", "REJECT", True), ("away", "", True)],
)
def test_a_loop_is_stopped_by_prefect_if_a_worker_runs_it_else_by_itself(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, deployment: str | None, status: str, is_signal: bool
) -> None:
    def prefect_answer(_: str, path: str, body: dict[str, Any] | None, method: str = "POST") -> dict[str, Any]:
        if deployment == "away":
            raise StoreError("does not answer")
        if method == "GET":
            return {"deployment_id": deployment}
        assert path == f"flow_runs/{RUN}/set_state"
        assert body == {"state": {"type": "CANCELLING", "name": "Cancelling"}}
        return {"status": status}

    monkeypatch.setattr(flow_runs, "ask", prefect_answer)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    assert stop_loop(workspace, "tiny", "tiny-1", RUN, "too slow").done
    (line,) = Outbox(workspace.state / "projects" / "tiny", "tiny-1").lines().values()
    assert (line["op"], line["is_signal"]) == ("stop", is_signal)
    assert "too slow" in line["person"]
