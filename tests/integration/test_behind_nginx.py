"""What the nginx configuration that ships hands on, what it refuses, and which hostile clients it holds back."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest

from tasks.host import ports, stores
from tasks.host.http_guard import SERVE_TOKEN, token_of
from tasks.host.workspace import Workspace
from tests.certificates import certificate
from tests.conftest import Serve
from tests.integration.test_page import Browser, serving
from tests.nginx import Nginx, nginx
from tests.over_grpc import call, typed_request
from tests.serving import LiveServer, crown, live_server

pytestmark = pytest.mark.integration

GOOD = json.dumps({"dataframe_records": [{"x": 1.0, "c": "u"}]}).encode()
JSON = {"Content-Type": "application/json"}
NAME = "ml.example.org"
HOSTILE_TOKEN = "h" * 40
MOST_OF_ADDRESS, MOST_KEPT = 100, 64
"""Connections of nginx to the server: `limit_conn address`, and those that its two processes keep."""
QUICK = {f"{name}_timeout 10s;": f"{name}_timeout 1s;" for name in ("client_header", "client_body", "send")}


@dataclass(frozen=True)
class Both:
    """A server of the model `tiny`, and nginx before it; `server` asks through nginx."""

    worker: psutil.Process
    nginx: Nginx
    server: LiveServer
    bearer: dict[str, str]


@contextlib.contextmanager
def both(workspace: Workspace, serve: Serve, folder: Path, changes: dict[str, str] | None = None) -> Iterator[Both]:
    crown(workspace, "tiny")
    tokens = workspace.state / "serving" / "tokens"
    tokens.parent.mkdir(parents=True, exist_ok=True)
    tokens.write_text(f"{HOSTILE_TOKEN}  # has its own share of the server's rate\n")
    grpc_port = ports.any_free([])
    server = serve("tiny", arguments=("--name", NAME, "--grpc-port", str(grpc_port)))
    with nginx(folder, {"models": server.port, "grpc": grpc_port}, changes) as before:
        bearer = {"Authorization": f"Bearer {token_of(workspace, SERVE_TOKEN)}"}
        (worker,) = server.workers()
        yield Both(worker, before, replace(server, port=before.ports["models"]), bearer)


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, module_environment: None) -> Iterator[Both]:
    """A pair for all tests that change nothing of it."""
    workspace = Workspace(tmp_path_factory.mktemp("behind") / "workspace")
    workspace.make()
    stores.configure(workspace)
    with contextlib.ExitStack() as servers:

        def serve(*projects: str, **options: Any) -> LiveServer:
            return servers.enter_context(live_server(workspace, *projects, **options))

        yield servers.enter_context(both(workspace, serve, workspace.root))


def test_a_token_is_asked_and_health_passes(behind: Both) -> None:
    ask = behind.server.ask
    assert [behind.server.get(path).status for path in ("/ping", "/health", "/v2/health/live")] == [200] * 3
    assert ask("POST", "/invocations", GOOD, JSON).status == 401
    assert ask("POST", "/invocations", GOOD, {**JSON, **behind.bearer, "Host": NAME}).status == 200
    assert ask("POST", "/invocations", GOOD, {**JSON, **behind.bearer, "Host": "evil.example"}).status == 421
    method = "ModelInfer"
    with pytest.raises(grpc.RpcError) as refused:
        call(behind.nginx.ports["grpc"], method, typed_request())
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_body_may_be_as_large_as_the_server_takes(behind: Both) -> None:
    most = 16 << 20
    sent = GOOD[:-1] + b" " * (most - len(GOOD)) + GOOD[-1:]
    assert behind.server.ask("POST", "/invocations", sent, {**JSON, **behind.bearer}).status == 200
    refused = behind.server.ask("POST", "/invocations", sent + b" ", {**JSON, **behind.bearer})
    assert (refused.status, list(refused.json)) == (413, ["error"])


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"HELLO\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\nHost: localhost\r\nx: " + b"x" * (1 << 17) + b"\r\n\r\n", b"400"),
        (b"GET /" + b"x" * (1 << 17) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"414"),
    ],
    ids=["nonsense", "head", "address"],
)
def test_what_is_no_request_is_refused(behind: Both, sent: bytes, status: bytes) -> None:
    with client(behind) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
        assert connection.recv(1 << 16).split()[1] == status


def test_clients_that_would_rather_speak_another_protocol_keep_their_bodies(behind: Both) -> None:
    """As Java's client asks with every request."""
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQ"}
    assert behind.server.ask("POST", "/invocations", GOOD, {**JSON, **behind.bearer, **upgrade}).status == 200


def test_an_address_that_asks_too_often_is_refused_and_its_health_checks_are_not(
    workspace: Workspace, serve: Serve, tmp_path: Path
) -> None:
    changes = {"rate=2000r/s": "rate=1r/s", "burst=2000": "burst=2"}
    with both(workspace, serve, tmp_path, changes) as behind:
        refused = [behind.server.get("/version", **behind.bearer) for _ in range(6)][-1]
        assert (refused.status, list(refused.json)) == (429, ["error"])
        assert behind.server.get("/health").status == 200


def test_tls_is_three_lines_of_the_configuration(workspace: Workspace, serve: Serve, tmp_path: Path) -> None:
    certificate(tmp_path)
    changes = {"# listen ": "listen ", "# ssl_certificate": "ssl_certificate"}
    with both(workspace, serve, tmp_path, changes) as behind:
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        over_tls = replace(behind.server, port=behind.nginx.ports["tls"], tls=context)
        assert over_tls.ask("POST", "/invocations", GOOD, {**JSON, **behind.bearer}).status == 200


def test_a_server_that_is_away_is_told_as_json(workspace: Workspace, tmp_path: Path) -> None:
    with nginx(tmp_path, {"models": ports.any_free([])}) as before:
        lone = LiveServer(None, before.ports["models"], tmp_path)  # type: ignore[arg-type]
        refused = lone.get("/ping")
        assert (refused.status, list(refused.json)) == (503, ["error"])


@contextlib.contextmanager
def client(behind: Both, address: str = "127.0.0.1", receives: int | None = None) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.bind((address, 0))
        if receives is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", behind.server.port))
        yield connection


def test_hostile_clients_cost_the_server_nothing(workspace: Workspace, serve: Serve, tmp_path: Path) -> None:
    with both(workspace, serve, tmp_path, QUICK) as behind:
        besiege(behind, Hostile(readers=30, senders=10, silent=64, halves=30), patience_s=10)


@pytest.mark.soak
def test_many_hostile_clients_cost_the_server_nothing(workspace: Workspace, serve: Serve, tmp_path: Path) -> None:
    with both(workspace, serve, tmp_path) as behind:
        took_s = besiege(behind, Hostile(readers=300, senders=240, silent=700, halves=300), patience_s=60)
    print(
        f"{len(took_s)} others were answered, in {np.median(took_s):.3f} s at the median, {max(took_s):.3f} s at most"
    )


@dataclass(frozen=True)
class Hostile:
    """How many clients read nothing or a byte now and then, send 1 of 16 MB, say nothing, send half a head."""

    readers: int
    senders: int
    silent: int
    halves: int


def besiege(behind: Both, hostile: Hostile, patience_s: float) -> list[float]:
    """Connect all of them from one address, see that others are served, and that nginx ends every connection.

    The kernel goes on with an answer that nginx has ended and nobody reads, so ends are seen at nginx, and then here.

    Returns:
        Seconds that each request of the others took.
    """
    bearer = f"Authorization: Bearer {HOSTILE_TOKEN}"
    many = f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n".encode() * 150
    large = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\nContent-Length: {16 << 20}\r\n\r\n"
    before_mb, before_files = behind.worker.memory_info().rss / 1e6, behind.worker.num_fds()
    took_s = []
    with contextlib.ExitStack() as held:

        def clients(count: int, sent: bytes, receives: int | None = None) -> list[socket.socket]:
            connections = [held.enter_context(client(behind, "127.0.0.2", receives)) for _ in range(count)]
            for connection in connections:
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    connection.sendall(sent)
            return connections

        readers = clients(hostile.readers, many, receives=2048)
        others = clients(hostile.senders, large.encode() + b" " * (1 << 20))
        others += clients(hostile.silent, b"") + clients(hostile.halves, b"POST /invocations HTTP/1.1\r\nHost: 127.")
        began = time.monotonic()
        while num_clients := behind.nginx.num_clients:
            assert time.monotonic() - began < patience_s, f"nginx holds {num_clients} clients"
            for reader in readers[::2]:
                with contextlib.suppress(ConnectionResetError):
                    reader.recv(1)
            asked = time.monotonic()
            assert behind.server.get("/health").status == 200
            assert behind.server.ask("POST", "/invocations", GOOD, {**JSON, **behind.bearer}).status == 200
            took_s.append(time.monotonic() - asked)
            assert behind.worker.memory_info().rss / 1e6 - before_mb < 40
            assert behind.worker.num_fds() - before_files < MOST_OF_ADDRESS + MOST_KEPT
            assert behind.nginx.memory_mb < 150
            time.sleep(0.2)
        for connection in readers + others:
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 20):
                    pass
    return took_s


def test_silent_clients_do_not_shut_the_overview(workspace: Workspace, tmp_path: Path) -> None:
    with serving(workspace) as port, nginx(tmp_path, {"overview": port}, QUICK) as before:
        address = ("127.0.0.1", before.ports["overview"])
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(socket.create_connection(address)) for _ in range(64)]
            assert Browser(address[1]).get("/health").status == 200
            for connection in clients:
                connection.settimeout(20)
                with contextlib.suppress(ConnectionResetError):
                    assert connection.recv(100) == b""
