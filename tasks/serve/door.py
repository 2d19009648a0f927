"""What stands before every address: who may ask, how much may be sent, what is noted, and how a refusal is said.

One pass over the headers, no request object: this is paid for by every request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.serving import open_api, refusals
from models.serving.refusals import Refusal
from tasks.runtime.doors import FORWARDED
from tasks.serve.access import Access
from tasks.serve.dispatch import headers_of
from tasks.serve.logs import RequestLog
from tasks.serve.metrics import Metrics
from tasks.serve.passage import Passage, begin

OPEN = frozenset({*open_api.OPEN, "/webhooks/mlflow"})
"""Asked without a token: by orchestrators; and by the registry, which signs what it sends."""
TIMEOUT = "x-loopline-timeout-ms"
"""The header of how long the caller waits, in milliseconds."""
UNLOGGED = b"x-loopline-logged"
"""The header of an answer that is not in the prediction log, as `serve.log.when_full: answer` has it: `no`."""
SMALL_BYTES = 1 << 16
CLIENT_LEFT = 499
"""The status of a request whose caller left first, as nginx counts it; nobody is told it."""
MOST_DIGITS = 9
_FORWARDED = frozenset(FORWARDED)

_log = logging.getLogger("loopline.serve")


class Door:
    """The outermost layer of the application.

    Args:
        app: What lies behind.
        access: Who may ask.
        most_bytes: Of a body.
        metrics: Counts every request.
        log: Writes some down.
    """

    def __init__(self, app: ASGIApp, access: Access, most_bytes: int, metrics: Metrics, log: RequestLog) -> None:
        self._app, self._access, self._metrics, self._log = app, access, metrics, log
        self._bodies = Bodies(most_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused, pass on the rest, note both."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = begin()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                passage.status = message["status"]
                if passage.id and passage.shown_id:
                    message["headers"] = [*message["headers"], (b"x-request-id", passage.id.encode())]
                if passage.unlogged:
                    message["headers"] = [*message["headers"], (UNLOGGED, b"no")]
            await send(message)

        try:
            await self._pass(passage, scope, receive, sending)
        except Refusal as refusal:
            await _answer(sending, refusal.status, str(refusal), refusal.headers)
        except ClientDisconnect:
            passage.status = CLIENT_LEFT
        except Exception:
            _log.exception("a request failed", extra={"told": {"id": passage.shown_id, "path": scope["path"][:200]}})
            if passage.status:
                raise
            await _answer(sending, 500, "something went wrong here; the server's log says what", {})
        finally:
            close(self._metrics, self._log, passage, f"{scope['method']} {scope['path']}")

    async def _pass(self, passage: Passage, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        if TIMEOUT in headers:
            passage.deadline = _deadline(headers[TIMEOUT])
        self._access.check_host(headers.get("host", ""))
        if scope["path"] not in OPEN:
            client = scope["client"]
            is_forwarded = not _FORWARDED.isdisjoint(headers)
            self._access.admit(headers.get("authorization", ""), client[0] if client else "", is_forwarded=is_forwarded)
        length = None if "transfer-encoding" in headers else headers.get("content-length", "0")
        if length is not None and len(length) < 6 and int(length) <= SMALL_BYTES:
            await self._app(scope, receive, send)
        else:
            await self._bodies.counted(self._app, scope, receive, send, length)


def close(metrics: Metrics, log: RequestLog, passage: Passage, what: str) -> None:
    """Count a request that is over, and perhaps write it down. `what`: method and address."""
    seconds = time.perf_counter() - passage.began
    metrics.passed(passage, seconds)
    log.passed(passage, seconds, what)


class Bodies:
    """Large bodies: refused by their length before they are read, counted while they arrive, few at a time.

    Args:
        most_bytes: Of one.
        most_held: Of all that are under way.
    """

    def __init__(self, most_bytes: int, most_held: int | None = None) -> None:
        self._most = most_bytes
        self._most_held = 8 * most_bytes if most_held is None else most_held
        self._held = 0

    async def counted(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, length: str | None) -> None:
        """Pass on a request whose body is counted.

        Raises:
            Refusal: 413, it is too large; 503, too much arrives at once.
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
                raise refusals.busy("too much is being sent at once: ask again")
            return message

        try:
            await app(scope, receiving, send)
        finally:
            self._held -= got

    def _too_large(self) -> Refusal:
        return refusals.too_large(f"the body is larger than {self._most:,} bytes: send it in parts")


def _deadline(value: str) -> float:
    if not (value.isascii() and value.isdigit()) or len(value) > MOST_DIGITS:
        raise refusals.unreadable(f"{TIMEOUT}: got {value[:40]!r}, expected milliseconds")
    return time.monotonic() + int(value) / 1e3


async def _answer(send: Send, status: int, said: str, headers: Mapping[str, str]) -> None:
    body = orjson.dumps({"error": said})
    told = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    told += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
