"""A server of MLflow or Prefect that does not do its work: it refuses, says nothing, fails, or says only its health.

One that was stopped by SIGSTOP is as the silent one: the kernel takes its connections, and nobody answers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

ANSWERS = {
    "silent": b"",
    "healthy": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntrue",
    "broken": b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
}


@contextlib.contextmanager
def away(how: str) -> Iterator[tuple[str, list[bytes]]]:
    """A server that does not do its work: its address, and the requests that it got."""
    if how == "refused":
        yield "http://127.0.0.1:1", []
        return
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server, contextlib.ExitStack() as connections:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = connections.enter_context(server.accept()[0])
                    requests.append(connection.recv(65536).partition(b"\r\n")[0])
                    if ANSWERS[how] and (how != "healthy" or b"/health " in requests[-1]):
                        connection.sendall(ANSWERS[how])
                        connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=answer, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        finally:
            server.shutdown(socket.SHUT_RDWR)
