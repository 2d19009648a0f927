"""Connections over real sockets, before an endpoint that returns what it got: limits, timeouts, order, the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from models.serving.http_errors import RequestError
from tasks.release.settings import ServerSettings
from tasks.serve import calls, connection
from tasks.serve.app import make
from tasks.serve.calls import HttpRequest, HttpResponse
from tasks.serve.connection import HEAD_S, PIPELINED_BYTES, Connection, ConnectionLimits
from tasks.serve.middleware import SMALL_BYTES, ServerMiddleware
from tasks.serve.state import WorkerState


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(head.split()[1]), headers, body)

    async def is_closed(self) -> bool:
        """Whether the server has closed the connection, without a word."""
        await turns(50)
        return self.reader.at_eof() or self.reader.exception() is not None


async def turns(count: int) -> None:
    """Let the event loop, which is the server's and the clients', look at its sockets so many times."""
    for _ in range(count):
        await asyncio.sleep(0.001)


class Rig:
    """A server with the endpoint `/echo`; it answers the body `wait` once `may_go_on` is set."""

    def __init__(self, place: Path) -> None:
        endpoints: dict[str, calls.Endpoint] = {"/echo": self.echo, "/models/{name}/echo": self.echo}
        app = make(ServerSettings(str(place), ("tiny",)))
        app.router.routes += [calls.route(path, endpoint) for path, endpoint in endpoints.items()]
        self.state: WorkerState = app.state  # type: ignore[assignment]
        self.limits = ConnectionLimits(self.state)
        door = ServerMiddleware(app, self.state, calls.exact_endpoints(endpoints, ["tiny"]))
        self.config = Config(app=door, http=Connection, log_config=None, ws="none")
        self.config.load()
        self.server = ServerState()
        self.server.default_headers = [(b"date", b"today")]
        self.may_go_on, self.num_begun = asyncio.Event(), 0

    async def echo(self, call: HttpRequest) -> HttpResponse:
        self.num_begun += 1
        if call.body == b"wait":
            await self.may_go_on.wait()
        if call.body == b"refuse":
            raise RequestError(429, "too many", {"retry-after": "1"})
        if call.body == b"fail":
            raise ValueError("a secret")
        body = orjson.dumps([call.body.decode(), dict(call.params), call.headers.get("x-a")])
        return HttpResponse(body, {"content-type": "application/json", "content-length": str(len(body))})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        self.clients: list[Client] = []
        listening = await asyncio.get_running_loop().create_server(self._made, "127.0.0.1", 0)
        self.address = listening.sockets[0].getsockname()
        async with listening, asyncio.timeout(20):
            try:
                yield
            finally:
                self.may_go_on.set()
                for client in self.clients:
                    client.writer.close()

    def _made(self) -> Connection:
        return Connection({"connections": self.limits}, config=self.config, server_state=self.server)

    async def connect(self, sent: bytes = b"", address: str = "127.0.0.1") -> Client:
        client = Client(*await asyncio.open_connection(*self.address, local_addr=(address, 0)))
        self.clients.append(client)
        client.send(sent)
        await turns(10)
        return client

    async def at_work(self) -> Client:
        """A client whose request is being answered."""
        before, client = self.num_begun, await self.connect(request(b"wait"))
        while self.num_begun == before:
            await asyncio.sleep(0.001)
        return client

    def metric(self, name: str) -> float:
        self.state.metrics._count()
        lines = self.state.metrics.text().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"loopline_serve_{name}"))


def request(
    body: bytes = b"abc", path: str = "/echo", headers: str = "x-a: 1\r\nx-A: 2\r\n", version: str = "1.1"
) -> bytes:
    head = f"POST {path} HTTP/{version}\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def echoed(body: str, **params: str) -> bytes:
    return orjson.dumps([body, params, "1"])


def run(place: Path, play: Callable[[Rig], Awaitable[Any]]) -> Any:
    async def playing() -> Any:
        rig = Rig(place)
        async with rig.serving():
            return await play(rig)

    return asyncio.run(playing())


def ask(place: Path, *parts: bytes) -> Answer:
    """Send a request in parts, a moment between them."""

    async def play(rig: Rig) -> Answer:
        client = await rig.connect()
        for part in parts:
            client.send(part)
            await turns(5)
        return await client.answer()

    return run(place, play)  # type: ignore[no-any-return]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(connection, "PROBE_CONNECTIONS", 2)
    monkeypatch.setattr(connection, "CLOSED_AT_ONCE", 1)


@pytest.mark.usefixtures("few")
def test_the_connection_that_has_been_idle_longest_gives_way_to_the_newest(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        held = [await rig.connect() for _ in range(6)]
        assert [await one.is_closed() for one in held] == [True, True, False, False, False, False]
        assert rig.metric("closed_connections_total") == 2

    run(tmp_path, play)


@pytest.mark.usefixtures("few")
def test_the_address_with_most_connections_gives_way(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        first = await rig.connect(address="127.0.0.2")
        crowd = [await rig.connect() for _ in range(4)]
        assert not await first.is_closed()
        assert [await one.is_closed() for one in crowd] == [True, False, False, False]

    run(tmp_path, play)


@pytest.mark.usefixtures("few")
def test_a_head_that_comes_in_drops_gives_way_and_a_request_at_work_does_not(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        work, half_body = await rig.at_work(), await rig.connect(request()[:-1])
        dropping = await rig.connect(request()[:20])
        later = [await rig.connect() for _ in range(2)]
        assert await dropping.is_closed()
        assert [await one.is_closed() for one in (work, half_body, *later)] == [False] * 4

    run(tmp_path, play)


@pytest.mark.usefixtures("few")
def test_while_all_are_at_work_a_further_one_is_heard_for_probes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(rig: Rig) -> None:
        held = [await rig.at_work() for _ in range(4)]
        other = await rig.connect(request())
        refused = [await other.answer()]
        probe = await rig.connect(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await probe.answer()).status == 200
        monkeypatch.setattr(connection, "PROBE_CONNECTIONS", 0)
        probe.writer.close()
        beyond = await rig.connect()
        refused.append(await beyond.answer())
        for one in refused:
            assert (one.status, one.headers["retry-after"], one.headers["connection"]) == (503, "1", "close")
        assert [await one.reader.read() for one in (other, beyond)] == [b"", b""]
        assert rig.metric('requests_total{model="",status="503"') == 2
        rig.may_go_on.set()
        assert [(await one.answer()).status for one in held] == [200] * 4

    run(tmp_path, play)


def test_a_request_that_names_two_hosts_is_refused_and_counted(tmp_path: Path) -> None:
    """RFC 9112, section 3.2."""

    async def play(rig: Rig) -> None:
        client = await rig.connect(request(headers="host: evil.example\r\n"))
        assert (await client.answer()).status == 400
        assert await client.reader.read() == b""
        assert rig.metric('requests_total{model="",status="400"') == 1

    run(tmp_path, play)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_refused_as_json_and_counted(tmp_path: Path, sent: bytes) -> None:
    async def play(rig: Rig) -> None:
        client = await rig.connect(sent)
        refused = await client.answer()
        assert (refused.status, list(orjson.loads(refused.body))) == (400, ["error"])
        assert await client.reader.read() == b""
        assert rig.metric('requests_total{model="",status="400"') == 1

    run(tmp_path, play)


@pytest.mark.parametrize(
    ("sent", "status"), [(b"GET /ping HTTP/1.1\r\nx: " + b"x" * (1 << 16), 431), (b"GET /" + b"x" * (1 << 16), 414)]
)
def test_a_head_that_is_too_long_is_refused(tmp_path: Path, sent: bytes, status: int) -> None:
    async def play(rig: Rig) -> None:
        client = await rig.connect(sent if status == 431 else sent + b" HTTP/1.1\r\n\r\n")
        assert (await client.answer()).status == status

    run(tmp_path, play)


def test_a_client_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        silent, head, body = await rig.connect(), await rig.connect(b"POST /"), await rig.connect(request()[:-1])
        work, idle = await rig.at_work(), await rig.connect(request())
        await idle.answer()
        for one in list(rig.limits.connections):
            one.check(time.monotonic() + HEAD_S + 2)
        assert [(await one.answer()).status for one in (head, body)] == [408, 408]
        assert await silent.is_closed()
        assert not await work.is_closed()
        assert not await idle.is_closed(), "uvicorn's own timer ends it"
        assert rig.metric('requests_total{model="",status="408"') == 2

    run(tmp_path, play)


def test_a_large_body_gets_more_time(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        client = await rig.connect(request(b"x" * (10 << 16))[:-1])
        (one,) = rig.limits.connections
        one.check(time.monotonic() + HEAD_S + 5)
        client.send(b"x")
        assert (await client.answer()).status == 200

    run(tmp_path, play)


def test_what_is_sent_behind_a_request_is_limited(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        client = await rig.at_work()
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.send(b"POST /echo HTTP/1.1\r\nx: " + b"x" * (2 * PIPELINED_BYTES))
            await client.writer.drain()
        assert await client.is_closed()

    run(tmp_path, play)


def test_the_rest_of_a_refused_body_is_read(tmp_path: Path) -> None:
    """A client that sends all before it reads gets the response; then the connection ends."""

    async def play(rig: Rig) -> None:
        client = await rig.connect()
        most = rig.state.settings.most_bytes
        client.send(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (most + 1))
        client.send(b"x" * (most + 1))
        await client.writer.drain()
        refused = await client.answer()
        assert (refused.status, refused.headers["connection"]) == (413, "close")
        assert await client.reader.read() == b""

    run(tmp_path, play)


def test_a_response_has_the_servers_headers_and_leaves_in_one_write(tmp_path: Path) -> None:
    async def play(rig: Rig) -> bytes:
        return await (await rig.connect(request(path="/models/tiny/echo"))).reader.read(1 << 16)

    body = echoed("abc", name="tiny")
    head = f"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    assert run(tmp_path, play) == head.encode() + body


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, len(request()) - 1), min_size=1, max_size=3, unique=True).map(sorted))
def test_what_arrives_in_parts_is_answered_alike(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    whole = request()
    ends = [0, *cuts, len(whole)]
    answer = ask(tmp_path_factory.mktemp("rig"), *[whole[start:end] for start, end in itertools.pairwise(ends)])
    assert (answer.status, answer.headers["date"], answer.body) == (200, "today", echoed("abc"))


@pytest.mark.parametrize(
    "whole",
    [
        request(headers="x-a: 1\r\nexpect: 100-continue\r\n"),
        request(version="1.0"),
        request(path="/echo?a=b"),
        request(path="/models/tiny/echo"),
        request(headers="x-a: 1\r\nconnection: upgrade\r\nupgrade: h2c\r\n"),
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
    ids=["expect", "version", "query", "name", "upgrade", "chunked"],
)
def test_what_is_out_of_the_ordinary_is_answered_too(tmp_path: Path, whole: bytes) -> None:
    async def play(rig: Rig) -> Answer:
        client = await rig.connect(whole)
        first = await client.answer()
        return await client.answer() if first.status == 100 else first

    answer = run(tmp_path, play)
    params = {"name": "tiny"} if b"/tiny/" in whole else {}
    assert (answer.status, answer.body) == (200, echoed("abc", **params))


def test_a_large_body_is_answered_too(tmp_path: Path) -> None:
    body = "x" * (SMALL_BYTES + 1)
    assert ask(tmp_path, request(body.encode())).body == echoed(body)


@pytest.mark.parametrize(("body", "status"), [(b"refuse", 429), (b"fail", 500)])
def test_refusals_and_failures_are_answered_as_json_and_counted(
    tmp_path: Path, body: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(rig: Rig) -> tuple[Answer, Answer, list[Any]]:
        client = await rig.connect(request(body))
        first = await client.answer()
        client.send(request())
        return first, await client.answer(), list(rig.state.metrics._passed)

    first, second, counted = run(tmp_path, play)
    assert (first.status, second.status, counted) == (status, 200, [("", "", status), ("", "", 200)])
    assert list(orjson.loads(first.body)) == ["error"]
    assert b"secret" not in first.body


def test_a_request_that_is_not_let_in_reaches_no_endpoint(tmp_path: Path) -> None:
    async def play(rig: Rig) -> None:
        client = await rig.connect(request().replace(b"localhost", b"evil.example"))
        assert ((await client.answer()).status, rig.num_begun) == (421, 0)

    run(tmp_path, play)


def test_answers_to_what_is_sent_at_once_come_in_its_order(tmp_path: Path) -> None:
    """Two wait behind one that waits; the last arrives when all are answered."""

    async def play(rig: Rig) -> list[bytes]:
        client = await rig.connect(request(b"a"))
        found = [(await client.answer()).body]
        client.send(request(b"wait"), request(b"b"), request(b"c"))
        await turns(50)
        assert rig.num_begun == 2, "those behind it wait"
        rig.may_go_on.set()
        found += [(await client.answer()).body for _ in range(3)]
        client.send(request(b"d"))
        return [*found, (await client.answer()).body]

    assert run(tmp_path, play) == [echoed(body) for body in ("a", "wait", "b", "c", "d")]


def test_what_waits_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    async def play(rig: Rig) -> tuple[Answer, bytes]:
        client = await rig.at_work()
        for one in list(rig.server.connections):
            one.shutdown()
        rig.may_go_on.set()
        return await client.answer(), await client.reader.read()

    answer, after = run(tmp_path, play)
    assert (answer.status, answer.body, answer.headers["connection"], after) == (200, echoed("wait"), "close", b"")


@pytest.mark.parametrize("is_new", [True, False])
def test_an_idle_connection_answers_a_request_that_is_on_its_way_when_the_server_ends(
    tmp_path: Path, is_new: bool
) -> None:
    async def play(rig: Rig) -> tuple[Answer, bytes, bool]:
        client, idle = await rig.connect(b"" if is_new else request()), await rig.connect()
        if not is_new:
            await client.answer()
        for one in list(rig.server.connections):
            one.shutdown()
        client.send(request())
        answer, after = await client.answer(), await client.reader.read()
        return answer, after, await idle.reader.read() == b""

    answer, after, is_closed = run(tmp_path, play)
    assert (answer.status, answer.headers["connection"], after, is_closed) == (200, "close", b"", True)


def test_a_connection_that_is_to_close_is_closed_behind_the_answer(tmp_path: Path) -> None:
    async def play(rig: Rig) -> tuple[Answer, bytes, int]:
        client = await rig.connect(request(headers="x-a: 1\r\nconnection: close\r\n") + request(b"never"))
        return await client.answer(), await client.reader.read(), rig.num_begun

    answer, after, num_begun = run(tmp_path, play)
    assert (answer.status, answer.headers["connection"], after, num_begun) == (200, "close", b"", 1)


def test_a_caller_who_does_not_read_is_waited_for(tmp_path: Path) -> None:
    """What cannot be written yet is not asked for: the server holds no more answers than the transport's mark."""
    many, body = 400, b"x" * 30_000

    async def play(rig: Rig) -> int:
        client, seen = await rig.connect(request(body) * many), -1
        while seen != rig.num_begun:
            seen = rig.num_begun
            await asyncio.sleep(0.2)
        found = [(await client.answer()).body for _ in range(many)]
        assert set(found) == {echoed(body.decode())}
        return seen

    assert run(tmp_path, play) < many
