"""A load generator that costs less than what it loads: one prepared request, sent again on a few kept connections.

A Python HTTP client costs three times what the server does. Here a client is a protocol of the event loop that looks
for the end of the head and for Content-Length, and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import uvloop

Request = Callable[[int], bytes]


@dataclass
class Load:
    """What a run of requests met: seconds of each answer, how many were not 200, and the bodies that were looked at."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    wall_s: float = 0.0

    @property
    def per_s(self) -> float:
        return len(self.seconds) / self.wall_s

    @property
    def p50_ms(self) -> float:
        return float(np.median(self.seconds)) * 1e3


def http_request(port: int, path: str, body: bytes, kind: str = "application/json", headers: str = "") -> bytes:
    """A POST as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def load(
    port: int,
    request: bytes,
    *,
    seconds: float = 1e9,
    count: int = 1 << 62,
    clients: int = 1,
    look: Callable[[bytes], None] | None = None,
) -> Load:
    """Send a request again and again.

    Args:
        port: Of this machine.
        request: As it goes over the wire.
        seconds: For so long, or
        count: so many times.
        clients: Connections, each with one request under way.
        look: Is given each answer, head and body.
    """
    return uvloop.run(_load(port, request, seconds, count, clients, look))


async def _load(
    port: int, request: bytes, seconds: float, count: int, clients: int, look: Callable[[bytes], None] | None
) -> Load:
    loop = asyncio.get_running_loop()
    met, over = Load(), loop.create_future()
    began = time.perf_counter()
    run = _Run(met, request, began + seconds, count, look, clients, over)
    made = [await loop.create_connection(lambda: _Client(run), "127.0.0.1", port) for _ in range(clients)]
    await over
    met.wall_s = time.perf_counter() - began
    for transport, _ in made:
        transport.close()
    return met


@dataclass
class _Run:
    met: Load
    request: bytes
    until: float
    left: int
    look: Callable[[bytes], None] | None
    living: int
    over: asyncio.Future[None]

    def ended(self) -> None:
        self.living -= 1
        if not self.living and not self.over.done():
            self.over.set_result(None)


class _Client(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run, self._got, self._sent, self._is_over = run, b"", 0.0, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        got = self._got = self._got + data
        head = got.find(b"\r\n\r\n")
        if head < 0:
            return
        names = got[:head].lower()  # nginx writes them in capitals
        at = names.find(b"content-length: ")
        size = int(got[at + 16 : got.find(b"\r\n", at)])
        if len(got) < head + 4 + size:
            return
        run = self._run
        run.met.seconds.append(time.perf_counter() - self._sent)
        if got[9:12] != b"200":
            run.met.failed += 1
        if run.look is not None:
            run.look(got)
        self._got = b""
        if b"connection: close" not in names:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        if self._sent > self._run.until or self._run.left <= 0:
            self._end()
            return
        self._run.left -= 1
        self._transport.write(self._run.request)

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._run.ended()
