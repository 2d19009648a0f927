"""Clients that are slow, stop half-way, send too much or nonsense: each hears a clear error; nobody else notices."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tasks.host.workspace import Workspace
from tasks.release.settings import MOST_CONNECTIONS
from tests.bench.load import http_request, load
from tests.serving import LiveServer, crown, live_server
from tests.wide import wide

GOOD = {"dataframe_records": [{"x": 1.0, "c": "u"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    workspace = Workspace(tmp_path_factory.mktemp("bad-clients"))
    workspace.make()
    crown(workspace, "tiny")
    with live_server(workspace, "tiny", cold=True) as started:  # its memory is asked for
        yield started


def used_then_idle(port: int) -> tuple[list[int], float]:
    """Use a connection for longer than an idle one is kept; return the answers, and how long it then stayed open."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        heard = []
        for _ in range(7):
            client.request("POST", "/invocations", json.dumps(GOOD))
            answer = client.getresponse()
            answer.read()
            heard.append(answer.status)
            time.sleep(1)
        began = time.monotonic()
        assert client.sock.recv(100) == b""
        return heard, time.monotonic() - began


@pytest.fixture(scope="module", autouse=True)
def idle(server: LiveServer) -> Iterator[Future[tuple[list[int], float]]]:
    """Such a connection, beside those of the first tests: it takes twelve seconds."""
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(used_then_idle, server.port)


@pytest.fixture(autouse=True)
def _others_are_answered(server: LiveServer) -> Iterator[None]:
    """Whatever a client did, the next is answered, and nothing went wrong on our side."""
    yield
    assert server.post("/invocations", GOOD).status == 200
    assert '"trace"' not in server.printed


@contextlib.contextmanager
def connected(server: LiveServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        yield client


def head_of(length: int, more: str = "") -> bytes:
    return f"POST /invocations HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}Content-Length: {length}\r\n\r\n".encode()


def test_a_client_that_goes_half_way(server: LiveServer) -> None:
    with connected(server) as client:
        client.sendall(head_of(1000) + b'{"dataframe')
    server.wait_until(lambda: b'status="499"' in server.get("/metrics").body)


@pytest.mark.parametrize("how", ["Content-Length: 1000000000\r\n", "Transfer-Encoding: chunked\r\n"])
def test_a_huge_body_is_refused_while_it_is_sent(server: LiveServer, how: str) -> None:
    chunk = b"x" * (1 << 20)
    framed = b"100000\r\n" + chunk + b"\r\n" if "chunked" in how else chunk
    with connected(server) as client:
        client.sendall(f"POST /invocations HTTP/1.1\r\nHost: 127.0.0.1\r\n{how}\r\n".encode())
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(24):
                client.sendall(framed)
        got = b""
        while not got.endswith(b"}") and (part := client.recv(1 << 16)):
            got += part
    assert got.startswith(b"HTTP/1.1 413 "), got[:200]
    assert b"larger than 16,777,216 bytes" in got
    (worker,) = server.workers()
    assert worker.memory_info().rss < 250e6


@pytest.mark.parametrize("nonsense", [b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http(server: LiveServer, nonsense: bytes) -> None:
    with connected(server) as client:
        client.sendall(nonsense)
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[" * 100_000, b"[" * 500 + b"]" * 500, b'{"a":' * 2000, b"NaN", b"\xff\xfe", b"null", b"0",
        b'{"dataframe_records": [{"x": 1e999, "c": "u"}]}',
        b'{"dataframe_records": [{"x": [1], "c": "u"}]}', b'{"dataframe_records": [{"x": "1", "c": "u"}]}',
        b'{"dataframe_records": []}', b'{"dataframe_records": [[]]}', b'{"dataframe_records": {"x": 1}}',
        b'{"dataframe_split": {"columns": ["x"], "data": [[1, 2]]}}', b'{"inputs": {"x": [1, 2], "c": ["u"]}}',
    ],
)  # fmt: skip
def test_nonsense_in_the_body(server: LiveServer, body: bytes) -> None:
    reply = server.ask("POST", "/invocations", body, {"Content-Type": "application/json"})
    assert reply.status == 400, reply.body
    assert list(reply.json) == ["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404), ("GET", "/../../etc/passwd", 404), ("GET", "/models/%2e%2e%2f/invocations", 404),
        ("POST", "/models/other/invocations", 404), ("POST", "/v2/models/tiny/versions/99/infer", 404),
        ("GET", "/invocations", 405), ("DELETE", "/v2/models/tiny", 405),
    ],
)  # fmt: skip
def test_addresses_that_are_none(server: LiveServer, method: str, path: str, status: int) -> None:
    reply = server.ask(method, path, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1]}]}')
    assert reply.status in (status, 400 if status == 404 and method == "POST" else status), reply.body
    assert list(reply.json) == ["error"]
    assert "/tmp" not in reply.body.decode()


def test_another_host(server: LiveServer) -> None:
    assert server.get("/ping", Host="rebound.example").status == 421


def test_a_connection_that_is_idle_after_an_answer_is_closed_and_one_in_use_is_not(
    idle: Future[tuple[list[int], float]],
) -> None:
    heard, open_s = idle.result()
    assert heard == [200] * 7
    assert 3 < open_s < 15


def test_connections_have_a_ceiling_that_costs_little_memory(server: LiveServer) -> None:
    (worker,) = server.workers()
    before = worker.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(MOST_CONNECTIONS):
            held.enter_context(connected(server))
        server.wait_until(lambda: server.get("/health").status == 503)
        assert worker.memory_info().rss - before < 40e6
    server.wait_until(lambda: server.get("/health").status == 200)


@pytest.mark.parametrize("num_errors", [8_000, wide(24_000)])
def test_errors_leave_no_memory_behind(server: LiveServer, num_errors: int) -> None:
    """A million of them are asked by `python -m tests.bench serving`."""
    (worker,) = server.workers()
    bodies = [b"{", b'{"dataframe_records": [{"x": "a", "c": 1.5}]}', b'{"dataframe_records": [{}]}', b"[" * 2000]

    def refused(count: int) -> None:
        for body in bodies:
            met = load(server.port, http_request(server.port, "/invocations", body), count=count // 4, clients=8)
            assert met.failed == len(met.seconds) == count // 4

    refused(num_errors // 4)
    before = worker.memory_info().rss
    began = time.monotonic()
    refused(num_errors)
    assert worker.memory_info().rss - before < 4e6
    assert server.printed.count("\n") < 1000 + 60 * (time.monotonic() - began)
