"""Whatever way a request takes, its answer is the same: over real sockets, by an endpoint that says what it got."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from models.serving.http_errors import RequestError
from tasks.release.settings import ServerSettings
from tasks.serve import calls, fast_path
from tasks.serve.app import make
from tasks.serve.calls import HttpRequest, HttpResponse
from tasks.serve.fast_path import FastPath
from tasks.serve.middleware import SMALL_BYTES, ServerMiddleware
from tasks.serve.state import WorkerState

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


class Rig:
    """A server of one endpoint, `/tell`; `took` names the ways that its answers took."""

    def __init__(self, place: Path) -> None:
        endpoints: dict[str, calls.Endpoint] = {"/tell": self.tell, "/models/{name}/tell": self.tell}
        app = make(ServerSettings(str(place), ("tiny",)))
        app.router.routes[:] = [calls.route(path, endpoint) for path, endpoint in endpoints.items()]
        self.middleware = ServerMiddleware(
            app, cast("WorkerState", app.state), calls.wire_endpoints(endpoints, ["tiny"])
        )
        self.config = Config(app=self.middleware, http=FastPath, log_config=None)  # type: ignore[arg-type]
        self.config.load()
        self.config.loaded_app = self.middleware
        self.server = ServerState()
        self.server.default_headers = [(b"date", b"today")]
        self.may_go_on = asyncio.Event()
        self.took: list[str] = []

    async def tell(self, call: HttpRequest) -> HttpResponse:
        self.took.append("short" if _has_no_task() else "long")
        if call.body == b"wait":
            await asyncio.sleep(0)
            self.took.append("short" if _has_no_task() else "long")
            await self.may_go_on.wait()
        if call.body == b"refuse":
            raise RequestError(429, "too many", {"retry-after": "1"})
        if call.body == b"fail":
            raise ValueError("a secret")
        body = orjson.dumps([call.body.decode(), dict(call.params), call.headers.get("x-a")])
        return HttpResponse(body, {"content-type": "application/json", "content-length": str(len(body))})

    async def play(self, play: Play) -> Any:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: FastPath(self.config, self.server, {}), "127.0.0.1", 0)
        async with server, asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return await play(reader, writer)
            finally:
                writer.close()


def _has_no_task() -> bool:
    """Whether this runs where a socket was read."""
    return asyncio.current_task() is None


def request(
    body: bytes = b"abc", path: str = "/tell", headers: str = "x-a: 1\r\nx-A: 2\r\n", version: str = "1.1"
) -> bytes:
    head = f"POST {path} HTTP/{version}\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")[1:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    return int(head.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", "0")))


def asked(place: Path, *parts: bytes) -> tuple[Rig, tuple[int, dict[str, str], bytes]]:
    """Send a request in parts, a moment between them, on a connection of its own."""

    async def run() -> tuple[Rig, tuple[int, dict[str, str], bytes]]:
        rig = Rig(place)

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.005 if len(parts) > 1 else 0)
            return await answer(reader)

        return rig, await rig.play(play)

    return asyncio.run(run())


def told(body: str, **params: str) -> bytes:
    return orjson.dumps([body, params, "1"])


def test_what_arrives_whole_is_answered_where_it_was_read(tmp_path: Path) -> None:
    rig, (status, headers, body) = asked(tmp_path, request())
    assert (status, body, rig.took) == (200, told("abc"), ["short"])
    assert headers == {"date": "today", "content-type": "application/json", "content-length": str(len(body))}


def test_a_served_models_name_is_part_of_its_address(tmp_path: Path) -> None:
    rig, (_, _, body) = asked(tmp_path, request(path="/models/tiny/tell"))
    assert (body, rig.took) == (told("abc", name="tiny"), ["short"])
    rig, (_, _, body) = asked(tmp_path, request(path="/models/other/tell"))
    assert (body, rig.took) == (told("abc", name="other"), ["long"])


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(1, len(request()) - 1), min_size=1, max_size=3, unique=True).map(sorted))
def test_what_arrives_in_parts_is_answered_alike(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    whole = request()
    ends = [0, *cuts, len(whole)]
    parts = [whole[start:end] for start, end in itertools.pairwise(ends)]
    rig, (status, headers, body) = asked(tmp_path_factory.mktemp("rig"), *parts)
    assert (status, body) == (200, told("abc"))
    assert headers["date"] == "today"
    head = whole.index(b"\r\n\r\n") + 4
    assert rig.took == ["short" if cuts[-1] < head else "long"]


@pytest.mark.parametrize(
    "whole",
    [
        request(headers="x-a: 1\r\nexpect: 100-continue\r\n"),
        request(version="1.0"),
        request(path="/tell?a=b"),
        request(b"", headers="x-a: 1\r\nconnection: upgrade\r\nupgrade: h2c\r\n"),
        b"POST /tell HTTP/1.1\r\nhost: localhost\r\nx-a: 1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
    ids=["expect", "version", "query", "upgrade", "chunked"],
)
def test_what_is_out_of_the_ordinary_takes_the_long_way(tmp_path: Path, whole: bytes) -> None:
    async def run() -> tuple[list[str], bytes]:
        rig = Rig(tmp_path)

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            writer.write(whole)
            met = await answer(reader)
            return met[2] if met[0] == 200 else (await answer(reader))[2]

        return rig.took, await rig.play(play)

    took, body = asyncio.run(run())
    assert (took, body) == (["long"], told("" if b"h2c" in whole else "abc"))


def test_a_large_body_takes_the_long_way(tmp_path: Path) -> None:
    body = "x" * (SMALL_BYTES + 1)
    rig, met = asked(tmp_path, request(body.encode()))
    assert (met[2], rig.took) == (told(body), ["long"])


@pytest.mark.parametrize(("body", "status"), [(b"refuse", 429), (b"fail", 500)])
def test_both_ways_say_no_alike(tmp_path: Path, body: bytes, status: int, caplog: pytest.LogCaptureFixture) -> None:
    whole = request(body)
    rig, near = asked(tmp_path, whole)
    far_rig, far = asked(tmp_path, whole[:-1], whole[-1:])
    assert (rig.took, far_rig.took) == (["short"], ["long"])
    assert near == far
    assert near[0] == status
    assert b"secret" not in near[2]
    counted = list(rig.middleware._state.metrics._passed)
    assert counted == list(far_rig.middleware._state.metrics._passed) == [("", "", status)]


def test_a_request_that_is_not_let_in_reaches_no_endpoint(tmp_path: Path) -> None:
    rig, (status, _, _) = asked(tmp_path, request().replace(b"localhost", b"evil.example"))
    assert (status, rig.took) == (421, [])


def test_answers_to_what_is_sent_at_once_come_in_its_order(tmp_path: Path) -> None:
    """Two wait behind one that waits; the last arrives when all are answered."""

    async def run() -> tuple[list[str], list[bytes]]:
        rig = Rig(tmp_path)

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
            writer.write(request(b"a"))
            found = [(await answer(reader))[2]]
            writer.write(request(b"wait") + request(b"b") + request(b"c"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            rig.may_go_on.set()
            found += [(await answer(reader))[2] for _ in range(3)]
            writer.write(request(b"d"))
            return [*found, (await answer(reader))[2]]

        return rig.took, await rig.play(play)

    took, found = asyncio.run(run())
    assert found == [told(body) for body in ("a", "wait", "b", "c", "d")]
    assert took == ["short", "short", "long", "long", "long", "short"]


def test_what_waits_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    async def run() -> tuple[tuple[int, dict[str, str], bytes], bytes]:
        rig = Rig(tmp_path)

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
            writer.write(request(b"wait"))
            while not rig.server.tasks:
                await asyncio.sleep(0.001)
            for connection in list(rig.server.connections):
                connection.shutdown()
            rig.may_go_on.set()
            return await answer(reader), await reader.read()

        return await rig.play(play)  # type: ignore[no-any-return]

    (status, headers, body), after = asyncio.run(run())
    assert (status, body, headers["connection"], after) == (200, told("wait"), "close", b"")


def test_a_connection_that_is_to_close_is_closed_behind_the_answer(tmp_path: Path) -> None:
    async def run() -> tuple[tuple[int, dict[str, str], bytes], bytes, list[str]]:
        rig = Rig(tmp_path)

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
            writer.write(request(headers="x-a: 1\r\nconnection: close\r\n") + request(b"never"))
            return await answer(reader), await reader.read(), rig.took

        return await rig.play(play)  # type: ignore[no-any-return]

    (status, headers, _), after, took = asyncio.run(run())
    assert (status, headers["connection"], after, took) == (200, "close", b"", ["short"])


def test_a_caller_who_does_not_read_is_waited_for(tmp_path: Path) -> None:
    """What cannot be written yet is not asked for: the server holds no more answers than the transport's mark."""

    async def run() -> tuple[int, int]:
        rig = Rig(tmp_path)
        many = 400
        body = b"x" * 30_000

        async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, int]:
            writer.write(request(body) * many)
            seen = -1
            while seen != len(rig.took):
                seen = len(rig.took)
                await asyncio.sleep(0.2)
            found = [(await answer(reader))[2] for _ in range(many)]
            assert set(found) == {told(body.decode())}
            return seen, many

        return await rig.play(play)  # type: ignore[no-any-return]

    seen, many = asyncio.run(run())
    assert seen < many


def test_the_rest_of_what_was_begun_can_be_cancelled() -> None:
    met: list[str] = []

    async def begun() -> HttpResponse:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            met.append("cancelled")
            raise
        raise AssertionError

    async def run() -> None:
        going = begun()
        going.send(None)

        async def on() -> HttpResponse:
            return await fast_path._StartedCoroutine(going)

        task = asyncio.create_task(on())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert met == ["cancelled"]
