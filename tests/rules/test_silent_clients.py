"""Clients that say nothing cost the other clients nothing, where no nginx stands before a server too."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.integration.test_page import Browser, serving
from tests.serving import crown

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
