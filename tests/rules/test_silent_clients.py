"""A client that says nothing, or reads nothing, costs a server little, and the other clients nothing."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.integration.test_page import Browser, serving
from tests.serving import crown
from tests.unit.tasks.serve.test_connection import Rig, request, run, turns

pytestmark = pytest.mark.integration

NUM_SILENT = 80


@contextlib.contextmanager
def silent(port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as closing:
        yield [closing.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(NUM_SILENT)]


def test_silent_clients_do_not_shut_the_overview(workspace):
    with serving(workspace) as port, silent(port):
        assert Browser(port).get("/health").status == 200


def test_silent_clients_do_not_shut_a_server_of_models(workspace, serve):
    crown(workspace, "tiny")
    server = serve("tiny")
    with silent(server.port):
        assert server.get("/health").status == 200


async def unread(rig: Rig) -> int:
    """Connections to a server whose one client has asked for 12 MB and reads nothing."""
    await rig.connect(request(b"x" * 30_000) * 400)
    seen = -1
    while seen != rig.num_begun:
        seen = rig.num_begun
        await asyncio.sleep(0.1)
    return len(rig.limits.connections)


def test_a_connection_that_is_cut_is_gone_though_its_client_has_not_read(tmp_path):
    async def play(rig: Rig) -> tuple[int, int]:
        before = await unread(rig)
        for connection in rig.limits.connections:
            connection.cut()
        await turns(50)
        return before, len(rig.limits.connections)

    assert run(tmp_path, play) == (1, 0)


@pytest.mark.parametrize(("waits_s", "is_kept"), [(59, 1), (61, 0)])
def test_a_client_that_reads_nothing_for_a_minute_is_dropped(tmp_path, waits_s, is_kept):
    async def play(rig: Rig) -> int:
        await unread(rig)
        for now in (1000.0, 1000.0 + waits_s):
            for connection in rig.limits.connections:
                connection.check(now)
        await turns(50)
        return len(rig.limits.connections)

    assert run(tmp_path, play) == is_kept
