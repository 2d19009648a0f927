"""Clients of the dashboard that are waited for, over real sockets."""

import asyncio
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from tasks.dashboard import connection
from tasks.dashboard.connection import ArrivalMiddleware, PromptConnection

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def replies(*sent: bytes) -> list[bytes]:
    """What each of several clients gets until its connection ends or a little while is over; they come one by one."""
    config, state = Config(ArrivalMiddleware(app), log_config=None, lifespan="off"), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PromptConnection({}, config=config, server_state=state), "127.0.0.1", 0)
    clients = []
    for text in sent:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(text)
        clients.append((reader, writer))
        await asyncio.sleep(0.02)
    found = [await first(reader) for reader, _ in clients]
    for _, writer in clients:
        writer.close()
    server.close()
    return found


async def first(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(12), 0.3)
    except ConnectionError:
        return b"closed"
    except TimeoutError:
        return b"waits"


def test_who_has_been_waited_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_WAITING", 2)
    found = asyncio.run(replies(b"", b"GET / HT", REQUEST, b"", b""))
    assert [text in (b"", b"closed") for text in found] == [True, True, False, False, False]
    assert found[2:] == [b"HTTP/1.1 204", b"waits", b"waits"]


def test_a_request_that_does_not_arrive_in_time_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.1)
    part = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nabc"
    found = asyncio.run(replies(b"", part, REQUEST))
    assert found[0] in (b"", b"closed")
    assert found[2] == b"HTTP/1.1 204"
    assert len(connection._waiting) == 0
