"""Connections of the dashboard: silent clients are dropped, and none of them shuts out the others.

uvicorn waits for ever for a first request, and its `limit_concurrency` counts connections that say nothing: with a
limit of 64, so many of them, which need no token, got everybody else 503 (uvicorn 0.54).
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_S = 30.0
"""Seconds within which a request must arrive, body included, from the connection or the request's first byte on."""
MOST_WAITING = 256
"""Clients that are waited for at once; one more, and the one that has been waited for longest is dropped."""
_waiting: dict[PromptConnection, asyncio.TimerHandle] = {}
"""Connections whose client is waited for, longest first."""


class PromptConnection(asyncio.Protocol):
    """A connection whose client must send its request in time; it stands before uvicorn's protocol.

    Args:
        app_state: The state of the application's lifespan.
        made: What uvicorn passes to a protocol.
    """

    def __init__(self, app_state: dict[str, Any], **arguments: Any) -> None:
        self._http = HttpToolsProtocol(**arguments, app_state={**app_state, "connection": self})
        self._is_working = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._http.connection_made(self._transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client."""
        self._stop_waiting()
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, and pass its bytes to uvicorn."""
        if not self._is_working and self not in _waiting:
            self._wait()
        self._http.data_received(data)

    def eof_received(self) -> None:
        """Close the connection when the client has closed its end."""
        self._http.eof_received()

    def pause_writing(self) -> None:
        """Hold back responses while the client does not read them."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Go on with responses."""
        self._http.resume_writing()

    def arrived(self) -> None:
        """The request is whole: the client is not waited for until it is answered."""
        self._is_working = True
        self._stop_waiting()

    def answered(self) -> None:
        """The response is written; uvicorn closes the connection if it stays idle."""
        self._is_working = False

    def _wait(self) -> None:
        if len(_waiting) >= MOST_WAITING:
            next(iter(_waiting)).drop()
        _waiting[self] = asyncio.get_running_loop().call_later(REQUEST_S, self.drop)

    def _stop_waiting(self) -> None:
        if timer := _waiting.pop(self, None):
            timer.cancel()

    def drop(self) -> None:
        """Close the connection at once."""
        self._stop_waiting()
        self._transport.abort()


class ArrivalMiddleware:
    """Tells the connection of each request when it has arrived and when it is answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection: PromptConnection = scope["state"]["connection"]

        async def receiving() -> MutableMapping[str, Any]:
            message = await receive()
            if not message.get("more_body"):
                connection.arrived()
            return message

        if scope["method"] in ("GET", "HEAD"):
            connection.arrived()
        try:
            await self._app(scope, receiving, send)
        finally:
            connection.answered()
