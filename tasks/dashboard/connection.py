"""Connections of the dashboard: silent clients are dropped, and none of them shuts out the others."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_S = 30.0
"""Seconds within which a request must arrive, body included, from the connection or the request's first byte on."""
MOST_WAITING = 256
"""Clients that are waited for at once; one more, and the one that has been waited for longest is dropped."""


class PromptConnection(HttpToolsProtocol):
    """A connection whose client must send its request in time.

    uvicorn waits for ever for a first request, and its `limit_concurrency` counts connections that say nothing: with a
    limit of 64, so many of them, which need no token, got everybody else 503 (uvicorn 0.54).
    """

    _waiting: ClassVar[dict[PromptConnection, asyncio.TimerHandle]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the rest of a request."""
        self._wait()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """The request is whole; uvicorn closes a connection that stays idle after the response."""
        self._stop_waiting()
        super().on_message_complete()

    def _wait(self) -> None:
        self._stop_waiting()
        if len(self._waiting) >= MOST_WAITING:
            next(iter(self._waiting)).drop()
        self._waiting[self] = asyncio.get_running_loop().call_later(REQUEST_S, self.drop)

    def _stop_waiting(self) -> None:
        if timer := self._waiting.pop(self, None):
            timer.cancel()

    def drop(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self.transport.abort()
