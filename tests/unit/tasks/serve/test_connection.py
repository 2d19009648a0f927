"""Who is let in when there are too many connections: over transports that only note what is done to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tasks.release.settings import ServerSettings
from tasks.serve import connection
from tasks.serve.app import make, with_middleware
from tasks.serve.connection import Connection

Connect = Callable[..., "Transport"]
HEAD = b"POST /invocations HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"


class Loop:
    """A loop in which no time passes and no task is carried out."""

    def call_later(self, *_: Any) -> None:
        """No timer runs."""

    def create_task(self, coroutine: Any, **_: Any) -> Loop:
        coroutine.close()
        return self

    def add_done_callback(self, _: Any) -> None:
        """None is ever done."""


class Transport:
    def __init__(self, address: str) -> None:
        self.address, self.written, self.is_closed = address, b"", False

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 1234) if name == "peername" else None

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True


class Rig:
    """A worker whose connections are made by hand; `clock` is its time."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = ServerSettings(str(place), ("tiny",))
        app = with_middleware(make(settings), settings)
        self.config = Config(app=app, http=Connection, log_config=None)
        self.config.load()
        self.config.loaded_app = app
        self.server, self.clock, self.door = ServerState(), 0.0, cast("Any", app)
        monkeypatch.setattr(connection.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(connection, "MOST_CONNECTIONS", 4)
        monkeypatch.setattr(connection, "PROBE_CONNECTIONS", 2)
        monkeypatch.setattr(connection, "CLOSED_AT_ONCE", 1)

    def connect(self, address: str = "1.1.1.1", sent: bytes = b"") -> Transport:
        self.clock += 1
        transport, made = Transport(address), Connection(self.config, self.server, {}, cast("Any", Loop()))
        made.connection_made(cast("Any", transport))
        if sent:
            made.data_received(sent)
        return transport

    def metric(self, name: str) -> float:
        self.door._state.metrics._count()
        lines = self.door._state.metrics.text().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"loopline_serve_{name}"))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def at_work(rig: Rig) -> Transport:
    """Whose request the application answers."""
    return rig.connect(sent=HEAD.replace(b"/invocations", b"/feedback") + b"[1, 2, 3]")


def test_the_connection_that_has_been_idle_longest_gives_way_to_the_newest(rig: Rig) -> None:
    held = [rig.connect() for _ in range(6)]
    assert [one.is_closed for one in held] == [True, True, False, False, False, False]
    assert not any(one.written for one in held)
    assert rig.metric("closed_connections_total") == 2


def test_the_address_with_most_connections_gives_way(rig: Rig) -> None:
    first = rig.connect("2.2.2.2")
    crowd = [rig.connect("1.1.1.1") for _ in range(4)]
    assert not first.is_closed
    assert [one.is_closed for one in crowd] == [True, False, False, False]


def test_a_head_that_comes_in_drops_gives_way_and_a_request_at_work_does_not(rig: Rig) -> None:
    work, dropping = at_work(rig), rig.connect(sent=HEAD[:20])
    later = [rig.connect() for _ in range(3)]
    assert dropping.is_closed
    assert not any(one.is_closed for one in (work, *later))


def test_while_all_are_at_work_a_further_one_is_heard_for_probes_alone(rig: Rig) -> None:
    held = [at_work(rig) for _ in range(4)]
    probe = rig.connect(sent=b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
    other = rig.connect(sent=HEAD)
    beyond = rig.connect()
    assert not any(one.is_closed for one in (*held, probe))
    assert probe.written == b""  # the application answers
    for one in (other, beyond):
        assert one.written.startswith(b"HTTP/1.1 503 ")
        assert one.is_closed
    assert rig.metric("requests_total") == 2


def test_a_request_with_two_hosts_is_refused_and_counted(rig: Rig) -> None:
    sent = HEAD.replace(b"host: localhost\r\n", b"host: localhost\r\nhost: other\r\n")
    refused = rig.connect(sent=sent + b"[1, 2, 3]")
    assert refused.written.startswith(b"HTTP/1.1 400 ")
    assert rig.metric('requests_total{model="",status="400"') == 1


def test_a_request_that_names_two_hosts_is_refused(rig: Rig) -> None:
    """RFC 9112, section 3.2."""
    refused = rig.connect(sent=HEAD.replace(b"\r\n\r\n", b"\r\nhost: evil.example\r\n\r\n") + b"[1, 2, 3]")
    assert refused.written.startswith(b"HTTP/1.1 400 ")
    assert refused.is_closed
