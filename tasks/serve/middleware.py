"""Middleware before every route: access, size limits, request context, error responses.

It reads the headers once and builds no request object, because every request pays this cost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.serving import http_errors, open_api
from models.serving.http_errors import RequestError
from tasks.host.http_guard import is_foreign, is_forwarded
from tasks.host.logs import Repeated
from tasks.serve.calls import HttpRequest, HttpResponse, WireEndpoint, named
from tasks.serve.request_context import RequestContext, begin
from tasks.serve.state import WorkerState

OPEN = frozenset({*open_api.OPEN, "/webhooks/mlflow"})
"""Addresses that need no token: those for orchestrators, and the webhook of the registry, which signs its requests."""
REQUEST_ID = "x-request-id"
"""The header with the client's id of a request."""
TIMEOUT = "x-loopline-timeout-ms"
"""The header with the time that the client waits, in milliseconds."""
UNLOGGED = "x-loopline-logged"
"""The header with the value `no` on a response that is not in the prediction log (`serve.log.when_full: answer`)."""
SMALL_BYTES = 1 << 16
CLIENT_LEFT = 499
"""The status of a request whose client disconnected first, as in nginx; it is only counted and logged, never sent."""
MOST_DIGITS = 9
Client = tuple[str, int] | None

_log = logging.getLogger("loopline.serve")


class ServerMiddleware:
    """The outermost layer of the application.

    Args:
        app: The wrapped application.
        state: The worker's state, with access control, limits, metrics and log.
        endpoints: Addresses that are answered without the application: see `answer`.
    """

    def __init__(self, app: ASGIApp, state: WorkerState, endpoints: Mapping[bytes, WireEndpoint]) -> None:
        self._app, self._state, self.endpoints = app, state, endpoints
        self._bodies = BodyLimits(state.settings.most_bytes)
        self._full = Repeated(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on; count and log both."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = begin()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] = [*message["headers"], *_raw(_noted(context))]
            await send(message)

        try:
            await self._pass(context, scope, receive, sending)
        except RequestError as refusal:
            await send_response(sending, _refused(refusal))
        except ClientDisconnect:
            context.status = CLIENT_LEFT
        except Exception:
            response = _failed(context, scope["path"])
            if context.status:
                raise
            await send_response(sending, response)
        finally:
            close(self._state, context, f"{scope['method']} {scope['path']}")

    async def answer(
        self, endpoint: WireEndpoint, headers: Mapping[str, str], body: bytes, client: Client
    ) -> HttpResponse:
        """Answer one of `endpoints` without the application; refusals and failures become responses too.

        Args:
            endpoint: The endpoint.
            headers: Values by lower-case name.
            body: The whole body, at most `SMALL_BYTES`.
            client: Address and port of the client.
        """
        context, response = begin(), None
        try:
            self._let_in(context, headers, client)
            response = await endpoint.endpoint(HttpRequest(self._state, headers, body, endpoint.params))
        except RequestError as refusal:
            response = _refused(refusal)
        except Exception:  # noqa: BLE001 - it is logged, and answered as a server error
            response = _failed(context, endpoint.address)
        finally:
            context.status = CLIENT_LEFT if response is None else response.status
            close(self._state, context, endpoint.address)
        response.headers.update(_noted(context))
        return response

    def refused(self, status: int, why: str) -> None:
        """Count and log a refusal by the connection, before there was a request."""
        close(self._state, RequestContext(status=status), why)

    def closed_to_make_room(self, count: int) -> None:
        """Count and log connections that were closed because there were too many."""
        self._state.metrics.closed_connections(count)
        self._full.log(logging.WARNING, "too many connections", "those that waited longest for their caller are closed")

    async def _pass(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        headers = named(scope["headers"])
        if "host" not in headers and scope["http_version"] != "1.0":
            raise http_errors.unreadable("a request in HTTP/1.1 names its Host")
        self._let_in(context, headers, scope["client"], scope["method"], is_open=scope["path"] in OPEN)
        if is_small(headers):
            await self._app(scope, receive, send)
        else:
            await self._bodies.counted(self._app, scope, receive, send, length_of(headers))

    def _let_in(
        self,
        context: RequestContext,
        headers: Mapping[str, str],
        client: Client,
        method: str = "POST",
        *,
        is_open: bool = False,
    ) -> None:
        """Check the access of a request, and store its id and its deadline in the context.

        A request without a Host header does not come from a page of another site: browsers always send the header.
        """
        if REQUEST_ID in headers:
            context.id = headers[REQUEST_ID]
        if TIMEOUT in headers:
            context.deadline = _deadline(headers[TIMEOUT])
        access = self._state.access
        if "host" in headers:
            access.check_host(headers["host"])
        if not is_open:
            access.admit(
                headers.get("authorization", ""),
                client[0] if client else "",
                is_forwarded=is_forwarded(headers),
                is_foreign=method == "POST" and is_foreign(headers),
            )


def length_of(headers: Mapping[str, str]) -> str | None:
    """Return the length of a request's body in digits; None if the headers do not state it."""
    return None if "transfer-encoding" in headers else headers.get("content-length", "0")


def is_small(headers: Mapping[str, str]) -> bool:
    """Return whether a request's body is known to be so small that its bytes need not be counted."""
    length = length_of(headers)
    return length is not None and len(length) < 6 and int(length) <= SMALL_BYTES


def close(state: WorkerState, context: RequestContext, what: str) -> None:
    """Count a finished request, and perhaps log it. `what`: method and address."""
    seconds = time.perf_counter() - context.began
    state.metrics.passed(context, seconds)
    state.log.passed(context, seconds, what)


class BodyLimits:
    """Limits large bodies: checks the stated length first, then counts bytes; also limits all open bodies together.

    Args:
        most_bytes: Maximum bytes of one body.
        most_held: Maximum bytes of all open bodies; None: eight times `most_bytes`.
    """

    def __init__(self, most_bytes: int, most_held: int | None = None) -> None:
        self._most = most_bytes
        self._most_held = 8 * most_bytes if most_held is None else most_held
        self._held = 0

    async def counted(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, length: str | None) -> None:
        """Pass a request on and count the bytes of its body.

        Raises:
            RequestError: 413, the body is too large; 503, all open bodies together are too large.
        """
        if length is not None and int(length) > self._most:
            raise self._too_large()
        got = 0

        async def receiving() -> MutableMapping[str, Any]:
            nonlocal got
            message = await receive()
            size = len(message.get("body", b""))
            got += size
            self._held += size
            if got > self._most:
                raise self._too_large()
            if self._held > self._most_held:
                raise http_errors.busy("too much is being sent at once: ask again")
            return message

        try:
            await app(scope, receiving, send)
        finally:
            self._held -= got

    def _too_large(self) -> RequestError:
        return http_errors.too_large(f"the body is larger than {self._most:,} bytes: send it in parts")


def _deadline(value: str) -> float:
    if not (value.isascii() and value.isdigit()) or len(value) > MOST_DIGITS:
        raise http_errors.unreadable(f"{TIMEOUT}: got {value[:40]!r}, expected milliseconds")
    return time.monotonic() + int(value) / 1e3


def _noted(context: RequestContext) -> dict[str, str]:
    """Return the response headers that depend on the request's context."""
    extra = {REQUEST_ID: context.shown_id} if context.id and context.shown_id else {}
    return {**extra, UNLOGGED: "no"} if context.unlogged else extra


def _refused(refusal: RequestError) -> HttpResponse:
    return _json_error(refusal.status, str(refusal), refusal.headers)


def _failed(context: RequestContext, path: str) -> HttpResponse:
    _log.exception("a request failed", extra={"fields": {"id": context.shown_id, "path": path[:200]}})
    return _json_error(500, "something went wrong here; the server's log says what", {})


def _json_error(status: int, words: str, headers: Mapping[str, str]) -> HttpResponse:
    body = orjson.dumps({"error": words})
    return HttpResponse(body, {**headers, "content-type": "application/json", "content-length": str(len(body))}, status)


async def send_response(send: Send, response: HttpResponse) -> None:
    """Send a response as an ASGI application does."""
    await send({"type": "http.response.start", "status": response.status, "headers": _raw(response.headers)})
    await send({"type": "http.response.body", "body": response.body})


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
