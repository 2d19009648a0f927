"""The fast path: a small prediction request that arrived whole is answered in the protocol's callback with one write.

The normal path is uvicorn's: a request cycle, a task, an ASGI application with messages in both directions. For a small
model this costs more than the prediction (`docs/decisions/0011`). These requests take the normal path: other addresses,
bodies that are large or arrive in parts, a request behind another one in the same read (otherwise one client could
block the event loop), and clients that read slowly.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tasks.serve.calls import HttpResponse, WireEndpoint, named
from tasks.serve.middleware import ServerMiddleware, is_small, send_response

Going = Coroutine[Any, Any, HttpResponse]


class FastPath(HttpToolsProtocol):
    """A connection that answers the `endpoints` of the `ServerMiddleware` directly.

    `is_ending`: each response is the last of its connection.
    `answered_at`: the time of its last fast-path response, by `time.monotonic`. uvicorn sets a timer after each
    response; the fast path sets none, and the check of all connections closes the idle ones.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.app, ServerMiddleware)
        self._middleware = self.app
        self._endpoint: WireEndpoint | None = None
        self._named: dict[str, str] = {}
        self._body = b""
        self._is_first = False
        self.answered_at: float | None = None
        self.is_ending = False

    def data_received(self, data: bytes) -> None:
        """Parse data; a request of which more is to come takes the normal path."""
        self._is_first = True
        super().data_received(data)
        if self._endpoint is not None:
            self._endpoint = None
            self._hand_to_app()
            if self._body:
                super().on_body(self._body)

    def on_headers_complete(self) -> None:
        """Choose the path of a request by its head."""
        endpoint = self._middleware.endpoints.get(self.url)
        if endpoint is not None and self._may_be_short():
            self._named, self._body = named(self.headers), b""
            if is_small(self._named) and "host" in self._named:
                self._endpoint = endpoint
                return
        self._hand_to_app()

    def on_body(self, body: bytes) -> None:
        """Collect the body for the fast path, or pass it to uvicorn."""
        if self._endpoint is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Answer a complete request at once if it need not wait for the batcher."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None:
            super().on_message_complete()
            return
        going = self._middleware.answer(endpoint, self._named, self._body, self.client)
        try:
            going.send(None)
        except StopIteration as done:
            self._say(done.value)
        else:
            self._hand_over(going)

    def _may_be_short(self) -> bool:
        parser = self.parser
        is_first, self._is_first = self._is_first, False
        return (
            is_first
            and parser.get_method() == b"POST"
            and not self._is_answering()
            and not self.expect_100_continue
            and not self.flow.write_paused
            and not parser.should_upgrade()
            and parser.get_http_version() == "1.1"
            and not self.transport.is_closing()
        )

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _hand_to_app(self) -> None:
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not self.is_ending

    def _say(self, response: HttpResponse) -> None:
        parts = [STATUS_LINE[response.status]]
        for name, value in self.server_state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        head = "".join([f"{name}: {value}\r\n" for name, value in response.headers.items()])
        keeps = self.parser.should_keep_alive() and not self.is_ending
        parts += (head.encode("latin-1"), b"\r\n" if keeps else b"connection: close\r\n\r\n", response.body)
        self.transport.write(b"".join(parts))
        if not keeps:
            self.transport.close()
        self.server_state.total_requests += 1
        self.answered_at = time.monotonic()

    def _hand_over(self, going: Going) -> None:
        """Continue a request that waits for the batcher in uvicorn's cycle, which handles disconnects and draining."""
        app, self.app = self.app, _rest_of(going)
        self._hand_to_app()
        self.app = app
        super().on_message_complete()


def _rest_of(going: Going) -> ASGIApp:
    """Return an ASGI application that sends the result of a coroutine that was started without a task."""

    async def saying(scope: Scope, receive: Receive, send: Send) -> None:
        await send_response(send, await _StartedCoroutine(going))

    return saying


class _StartedCoroutine:
    """Makes a coroutine that was started, and has yielded once, awaitable: a plain `await` refuses it."""

    def __init__(self, going: Going) -> None:
        self._going = going

    def __await__(self) -> Generator[Any, None, HttpResponse]:
        return self._going.__await__()
