"""Kill the server and its compactor under load, and fill its disk: what was acknowledged is in the log, once."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from models.files import write_json
from tasks.host import ports
from tasks.state.ingest_segments import move
from tasks.state.predictions import joined, label_store, prediction_log
from tests.over_grpc import call_whole, typed_request
from tests.running import mounted
from tests.serving import LiveServer, crown, live_server
from tests.wide import wide

CLIENTS = 3
PAUSE_S = 0.003
"""Between a client's requests: still hundreds a second, and cores for the workers that start again."""
JSON = {"Content-Type": "application/json"}


@dataclass
class Client(threading.Thread):
    """Asks again and again, each request with an id of its own, and notes what was acknowledged."""

    server: LiveServer
    number: int
    stop: threading.Event
    asked: int = 0
    answered: dict[str, float] = field(default_factory=dict)
    labelled: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self.stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
                with contextlib.closing(connection):
                    while not self.stop.is_set():
                        self._ask(connection)
            time.sleep(0.01)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        time.sleep(PAUSE_S)
        self.asked += 1
        one = f"{self.number}-{self.asked}"
        body = {"dataframe_records": [{"x": self.asked % 7, "c": "u"}]}
        connection.request("POST", "/invocations", json.dumps(body), {"X-Request-Id": one, **JSON})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status == 200, found
        self.answered[one] = found["predictions"][0]["probability_yes"]
        if self.asked % 5 == 0:
            headers = {**JSON, **self.server.bearer()}
            connection.request("POST", "/feedback", json.dumps({"id": one, "label": "yes"}), headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            self.labelled.add(one)


def compactors(server: LiveServer) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        children = psutil.Process(server.process.pid).children()
        return [one for one in children if "tasks.operations.compact" in " ".join(one.cmdline())]
    return []


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(10)


def kill_one(draw: random.Random, processes: list[psutil.Process]) -> bool:
    if processes:
        kill(draw.choice(processes))
    return bool(processes)


@contextlib.contextmanager
def loaded(server: LiveServer) -> Iterator[list[Client]]:
    stop = threading.Event()
    clients = [Client(server, number, stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        stop.set()
        for client in clients:
            client.join(30)


@pytest.mark.parametrize("kills", [3, wide(9), pytest.param(20, marks=pytest.mark.soak)])
def test_kill_9_under_load_loses_no_acknowledged_prediction_and_doubles_none(workspace, kills: int):
    """Workers one after the other, the compactor now and then, at last the server with all that it started."""
    crown(workspace, "tiny")
    state = workspace.state / "projects" / "tiny"
    draw = random.Random(1)
    with live_server(workspace, "tiny", arguments=("--workers", "2")) as server, loaded(server) as clients:
        for number in range(kills - 1):
            done = sum(len(client.answered) for client in clients)
            server.wait_until(lambda done=done: sum(len(client.answered) for client in clients) > done + 20)
            which = compactors if number % 4 == 1 else LiveServer.workers
            server.wait_until(lambda which=which: kill_one(draw, which(server)))
        family = psutil.Process(server.process.pid).children(recursive=True)
        kill(psutil.Process(server.process.pid))
        for one in family:
            kill(one)
    move(state)
    answered = {one: score for client in clients for one, score in client.answered.items()}
    scores = [(row["id"], row["score"]) for table in prediction_log(state).scan() for row in table.to_pylist()]
    logged = dict(scores)
    assert len(scores) == len(logged), "none is there twice"
    assert {one: logged.get(one) for one in answered} == pytest.approx(answered)
    assert len(logged) - len(answered) <= sum(client.asked - len(client.answered) for client in clients)
    labelled = [row["id"] for table in label_store(state).scan() for row in table.to_pylist()]
    assert len(labelled) == len(set(labelled))
    assert set().union(*(client.labelled for client in clients)) <= set(labelled)
    assert [path.name for path in (state / "serving").rglob("*.seg*")] == []


@pytest.mark.parametrize("when_full", ["refuse", "answer"])
def test_a_full_disk_refuses_or_answers_as_the_spec_says_and_says_so(workspace, when_full):
    folder = crown(workspace, "tiny")
    write_json(folder / "spec.json", {"serve": {"log": {"when_full": when_full}}})
    crown(workspace, "tiny")
    state = workspace.state / "projects" / "tiny"
    place = state / "serving" / "predictions"
    place.mkdir(parents=True)
    grpc_port = ports.any_free([])
    server_of = live_server(workspace, "tiny", arguments=("--grpc-port", str(grpc_port)))
    with mounted(place, "-t", "tmpfs", "-o", "size=64k", "tmpfs"), server_of as server:

        def ask(one: str):
            body = {"dataframe_records": [{"x": 1, "c": "u", "note": "n" * 2000}]}
            return server.post("/invocations", body, **{"X-Request-Id": one})

        ids, reply = [], ask("q0")
        while reply.status == 200 and "x-loopline-logged" not in reply.headers:
            ids.append(f"q{len(ids)}")
            reply = ask(f"q{len(ids)}")
        lost = f"q{len(ids)}"
        assert len(ids) > 5
        if when_full == "refuse":
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert reply.json == {"error": "tiny: the prediction log cannot be written: nothing is answered meanwhile"}
        else:
            assert (reply.status, reply.headers["x-loopline-logged"]) == (200, "no")
            assert 'loopline_serve_unlogged_rows_total{model="tiny"} 1.0' in server.get("/metrics").body.decode()
            while "x-loopline-logged" not in call_whole(grpc_port, "ModelInfer", typed_request(id=f"g{len(ids)}"))[1]:
                ids.append(f"g{len(ids)}")  # a smaller record, for which there was room
        assert "the disk is full" in server.printed
        assert str(workspace.root) not in reply.body.decode()
        remount(place, "10m")
        assert "x-loopline-logged" not in ask("after").ok().headers
        assert "x-loopline-logged" not in call_whole(grpc_port, "ModelInfer", typed_request(id="over grpc"))[1]
        move(state)
        found = [row["id"] for table in joined(state) for row in table.to_pylist()]
        assert sorted(found) == sorted([*ids, "after", "over grpc"])
        assert lost not in found


def remount(place: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)
