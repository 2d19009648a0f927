"""What becomes of a flow run whose process is gone."""

import contextlib
import socket
import struct
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from models.errors import StoreError
from tasks.prefect import flow_runs
from tasks.prefect.flow_runs import MOST_STARTS, ask, becomes, begin_again, is_missed, take_up

DUE = "2026-11-21T18:00:00+00:00"


def run(state: str, count: int) -> dict[str, object]:
    return {"state_type": state, "run_count": count, "expected_start_time": DUE}


def test_one_that_was_cut_short_is_run_again_in_its_turn() -> None:
    state = becomes(run("RUNNING", 1))
    assert state["type"] == "SCHEDULED"
    assert state["state_details"] == {"scheduled_time": DUE}, "its turn comes before that of later ones"


def test_one_that_was_being_cancelled_is_cancelled() -> None:
    assert becomes(run("CANCELLING", 1))["type"] == "CANCELLED"


def test_one_that_ends_its_worker_each_time_is_not_run_for_ever() -> None:
    kinds = [becomes(run("PENDING", count))["type"] for count in range(MOST_STARTS + 1)]
    assert kinds == ["SCHEDULED"] * MOST_STARTS + ["CRASHED"]


def test_a_server_that_is_away_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="does not answer"):
        ask("http://127.0.0.1:9/api", "flow_runs/filter", {})


@pytest.mark.parametrize(("by_schedule", "count", "missed"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_no_catch_up_is_for_schedules_alone(by_schedule: bool, count: int, missed: bool) -> None:
    """What a person or an event asked for is done late; what was cut short goes on."""
    assert is_missed({"auto_scheduled": by_schedule, "run_count": count}) is missed


@pytest.mark.parametrize(("refusals", "heard"), [(2, True), (9, False)])
def test_a_server_that_has_no_time_now_is_asked_again(
    refusals: int, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect's server answers 503 while its SQLite is locked."""
    monkeypatch.setattr(flow_runs, "PAUSES_S", (0.0, 0.0, 0.0))
    asked = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(503 if len(asked) <= refusals else 200)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Busy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with contextlib.nullcontext() if heard else pytest.raises(StoreError, match="503"):
            assert ask(f"http://127.0.0.1:{server.server_port}", "flow_runs/filter", {}) == []
        server.shutdown()
    assert len(asked) == (3 if heard else 4)


def test_a_connection_that_is_reset_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has just taken its port resets connections: `loopline up` failed by it once in seven starts."""
    monkeypatch.setattr(flow_runs, "PAUSES_S", (0.0, 0.0))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for number in range(3):
                connection, _ = server.accept()
                if number < 2:  # with this option the kernel resets the connection
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntrue")
                connection.close()

        serving = Thread(target=serve)
        serving.start()
        assert ask(f"http://127.0.0.1:{server.getsockname()[1]}/api", "flow_runs/filter", {}) is True
        serving.join()


@pytest.mark.parametrize(
    ("count", "crashed_s", "now_s", "begun"),
    [(0, 1, 30, False), (0, 1, 61, True), (1, 1, 61, False), (0, 600, 1000, False), (0, 600, 1201, True)],
)
def test_a_run_that_crashed_before_it_began_is_begun_again_at_growing_intervals(
    count: int, crashed_s: float, now_s: float, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = datetime.fromisoformat(DUE).timestamp()
    crashed = datetime.fromtimestamp(due + crashed_s, UTC).isoformat()
    lost = {**run("CRASHED", count), "id": "r1", "name": "r", "state": {"timestamp": crashed}}
    told: list[tuple[str, dict[str, object]]] = []

    def answer(_: str, path: str, body: dict[str, object]) -> list[object]:
        if path == "flow_runs/filter":
            return [] if body["offset"] else [lost]
        told.append((path, body))
        return []

    monkeypatch.setattr(flow_runs, "ask", answer)
    assert bool(begin_again("", "pool", due + now_s)) is begun
    assert [path for path, _ in told] == ["flow_runs/r1/set_state"] * begun
    if begun:
        state = told[0][1]["state"]
        assert (state["name"], state["state_details"]) == ("AwaitingRetry", {"scheduled_time": DUE})


@pytest.mark.parametrize(
    ("state", "count", "age_s", "becomes"),
    [
        ("RUNNING", 1, 90, "SCHEDULED"),
        ("RUNNING", 1, 30, None),  # Kubernetes may not list its job yet
        ("CRASHED", 1, 30, "SCHEDULED"),  # Prefect's worker has seen the end of its pod
        ("CRASHED", 0, 30, None),  # `begin_again` does it
        ("CRASHED", MOST_STARTS, 30, None),
        ("RUNNING", MOST_STARTS, 90, "CRASHED"),
    ],
)
@pytest.mark.parametrize("has_pod", [True, False])
def test_a_run_whose_pod_is_gone_is_run_again(
    state: str, count: int, age_s: float, becomes: str | None, has_pod: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = datetime.fromtimestamp(datetime.now(UTC).timestamp() - age_s, UTC).isoformat()
    lost = {**run(state, count), "id": "r1", "name": "r", "state": {"timestamp": since}, "labels": {}}
    told: list[str] = []

    def answer(_: str, path: str, body: dict[str, object]) -> list[object]:
        if path == "flow_runs/filter":
            asked = body["flow_runs"]["state"]["type"]["any_"]  # type: ignore[index]
            return [] if body["offset"] or state not in asked else [lost]
        told.append(body["state"]["type"])  # type: ignore[index]
        return []

    monkeypatch.setattr(flow_runs, "ask", answer)
    take_up("", "pool", {"living"}, {"r1"} if has_pod else set())
    assert told == ([] if has_pod or becomes is None else [becomes])


@pytest.mark.parametrize(
    ("state", "cancelled"), [("CANCELLING", True), ("CANCELLED", True), ("RUNNING", False), ("", False)]
)
def test_a_person_has_cancelled_the_run_of_this_process(
    state: str, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(api: str, path: str, body: object, method: str) -> dict[str, str]:
        assert (api, path, body, method) == ("http://there/api", "flow_runs/r1", None, "GET")
        if not state:
            raise StoreError("does not answer")
        return {"state_type": state}

    monkeypatch.setattr(flow_runs, "ask", answer)
    monkeypatch.setenv("PREFECT_API_URL", "http://there/api")
    monkeypatch.delenv(flow_runs.FLOW_RUN, raising=False)
    assert not flow_runs.is_cancelled(), "no worker began it"
    monkeypatch.setenv(flow_runs.FLOW_RUN, "r1")
    assert flow_runs.is_cancelled() is cancelled
