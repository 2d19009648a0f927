"""Middleware before every route: access, size limits, request context, error responses.

It reads the headers once and builds no request object, because every request pays this cost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.serving import http_errors, open_api
from models.serving.http_errors import RequestError
from tasks.host.http_guard import is_foreign, is_forwarded
from tasks.serve.calls import ExactEndpoint, HttpRequest, HttpResponse, named
from tasks.serve.request_context import RequestContext, begin
from tasks.serve.state import WorkerState

OPEN = frozenset({*open_api.OPEN, "/webhooks/mlflow"})
"""Addresses that need no token: those for orchestrators, and the webhook of the registry, which signs its requests."""
FEEDBACK = "/feedback"
REQUEST_ID = "x-request-id"
"""The header with the client's id of a request."""
TIMEOUT = "x-loopline-timeout-ms"
"""The header with the time that the client waits, in milliseconds."""
UNLOGGED = "x-loopline-logged"
"""The header with the value `no` on a response that is not in the prediction log (`serve.log.when_full: answer`)."""
UPGRADE = "a request with a body asks for another protocol: ask over HTTP/1.1 alone, or through nginx"
"""uvicorn takes the body for the other protocol. Java's client asks so with each request unless it is told HTTP/1.1."""
SMALL_BYTES = 1 << 16
LAST = {"connection": "close"}
CLIENT_LEFT = 499
"""The status of a request whose client disconnected first, as in nginx; it is only counted and logged, never sent."""
MOST_DIGITS = 9

_log = logging.getLogger("loopline.serve")


class ServerMiddleware:
    """The outermost layer of the application; it reads each request whole before anything else sees it.

    Args:
        app: The wrapped application.
        state: The worker's state, with access control, limits, metrics and log.
        endpoints: Addresses of POST that are answered without the application, which costs more than a prediction.
    """

    def __init__(self, app: ASGIApp, state: WorkerState, endpoints: Mapping[str, ExactEndpoint]) -> None:
        self._app, self._state, self._endpoints = app, state, endpoints
        self._bodies = BodyLimits(state.settings.most_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request or pass it on; count and log both."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = begin()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = message["status"]
                message["headers"] = [*message["headers"], *_noted(context, is_last=self._state.is_ending)]
            await send(message)

        try:
            await self._pass(context, scope, receive, sending)
        except ClientDisconnect:
            context.status = CLIENT_LEFT
        except Exception:
            response = _failed(context, scope["path"])
            if context.status:
                raise
            await send_response(sending, response)
        finally:
            self._state.count_request(context, f"{scope['method']} {scope['path']}")

    async def _pass(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, read its body and answer it. uvicorn reads on after a refusal, and discards the rest."""
        headers, body = named(scope["headers"]), b""
        try:
            self._let_in(context, headers, scope)
            body = await self._bodies.read(receive, length_of(headers))
            await self._answer(scope, headers, body, send)
        except RequestError as refusal:
            is_awaited = "expect" in headers and not body  # the client may send the body, or not
            await send_response(send, _refused(refusal, LAST if is_awaited else {}))
        finally:
            self._bodies.release(body)

    async def _answer(self, scope: Scope, headers: Mapping[str, str], body: bytes, send: Send) -> None:
        exact = self._endpoints.get(scope["path"]) if scope["method"] == "POST" else None
        if exact is not None:
            request = HttpRequest(self._state, headers, body, exact.params, scope["query_string"])
            await send_response(send, await exact.endpoint(request))
            return

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        await self._app(scope, receive, send)

    def _let_in(self, context: RequestContext, headers: Mapping[str, str], scope: Scope) -> None:
        """Check the head and the access of a request, and store its id and its deadline in the context.

        A request without a Host header does not come from a page of another site: browsers always send the header.
        """
        if REQUEST_ID in headers:
            context.id = headers[REQUEST_ID]
        if TIMEOUT in headers:
            context.deadline = _deadline(headers[TIMEOUT])
        if "upgrade" in headers and length_of(headers) != "0":
            raise RequestError(400, UPGRADE, LAST)
        access = self._state.access
        if "host" in headers:
            access.check_host(headers["host"])
        elif scope["http_version"] != "1.0":
            raise http_errors.unreadable("a request in HTTP/1.1 names its Host")
        raw = scope["headers"]
        if len(raw) != len(headers) and sum(name == b"host" for name, _ in raw) > 1:  # RFC 9112, section 3.2
            raise RequestError(400, "the request names more than one Host")
        if scope["path"] not in OPEN:
            client = scope["client"]
            access.admit(
                headers.get("authorization", ""),
                client[0] if client else "",
                is_forwarded=is_forwarded(headers),
                is_foreign=scope["method"] == "POST" and is_foreign(headers),
                is_feedback=scope["method"] == "POST" and scope["path"].endswith(FEEDBACK),
            )


def length_of(headers: Mapping[str, str]) -> str | None:
    """Return the length of a request's body in digits; None if the headers do not state it."""
    return None if "transfer-encoding" in headers else headers.get("content-length", "0")


class BodyLimits:
    """Limits bodies: checks the stated length first, then counts bytes; also limits all large ones together.

    Args:
        most_bytes: Maximum bytes of one body; all large bodies together may have eight times as many.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self._most_held = most_bytes, 8 * most_bytes
        self._held = 0

    async def read(self, receive: Receive, length: str | None) -> bytes:
        """Read a body, which counts as open until `release`.

        Raises:
            RequestError: 413, the body is too large; 503, all large bodies together are too large.
            ClientDisconnect: The client left before the body was whole.
        """
        if length is not None and int(length) > self._most:
            raise self._too_large()
        parts: list[bytes] = []
        size, has_more = 0, True
        try:
            while has_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                self._held -= _counted(size)
                size += len(parts[-1])
                self._held += _counted(size)
                if size > self._most:
                    raise self._too_large()
                if _counted(size) and self._held > self._most_held:
                    raise http_errors.busy("too much is being sent at once: ask again")
                has_more = message.get("more_body", False)
        except BaseException:
            self._held -= _counted(size)
            raise
        return b"".join(parts)

    def release(self, body: bytes) -> None:
        """Forget a body that was read."""
        self._held -= _counted(len(body))

    def _too_large(self) -> RequestError:
        return http_errors.too_large(f"the body is larger than {self._most:,} bytes: send it in parts")


def _counted(size: int) -> int:
    """Return how many bytes of a body count: small bodies are taken whatever the large ones hold."""
    return size if size > SMALL_BYTES else 0


def _deadline(value: str) -> float:
    if not (value.isascii() and value.isdigit()) or len(value) > MOST_DIGITS:
        raise http_errors.unreadable(f"{TIMEOUT}: got {value[:40]!r}, expected milliseconds")
    return time.monotonic() + int(value) / 1e3


def _noted(context: RequestContext, *, is_last: bool) -> list[tuple[bytes, bytes]]:
    """Return the response headers that depend on the request's context."""
    headers = [(REQUEST_ID.encode(), shown_id.encode())] if (shown_id := context.shown_id) else []
    if context.unlogged:
        headers.append((UNLOGGED.encode(), b"no"))
    if is_last:
        headers += _raw(LAST)
    return headers


def _refused(refusal: RequestError, more: Mapping[str, str]) -> HttpResponse:
    return _json_error(refusal.status, str(refusal), {**refusal.headers, **more})


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
