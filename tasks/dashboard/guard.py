"""Middleware of the dashboard: Host check, size limit, who may ask, and response headers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.dashboard.session import LOGGED_IN
from tasks.host.http_guard import AccessRules, is_foreign

FORM_BYTES = 64 * 1024
API_BYTES = 16 * 1024 * 1024
UPLOAD_BYTES = 1024 * 1024 * 1024
UPLOAD = "/new"
API = ("/labels/", "/trigger/")
TRY = "/try"
"""How the paths end that take a row or a picture."""
OPEN = ("/health", "/style.css", "/login")
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"
"""The policy for report pages of steps: each page has its own style and may run nothing."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class DashboardGuard:
    """The middleware that checks each request and adds the response headers."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer refused requests, pass on the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, sending)
        else:
            await self._app(scope, _limited(receive, scope["path"]), sending)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a refused request, or None if the request is allowed."""
        path, headers = request.url.path, request.headers
        if not self._rules.names_us(headers.get("host", "")):
            return PlainTextResponse("this is not a name of this server; see the guide of the overview page", 421)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _most_bytes(path):
            return PlainTextResponse(_too_large(path), 413)
        has_token = self._rules.bearer(headers.get("authorization", "")) is not None
        if path.startswith(API):
            return None if has_token else _unauthorised()
        if request.method not in ("GET", "HEAD") and is_foreign(headers):
            return PlainTextResponse("this form was sent from another site", 403)
        if path in OPEN or has_token or request.session.get(LOGGED_IN):
            return None
        if request.method in ("GET", "HEAD") and "text/html" in headers.get("accept", ""):
            return RedirectResponse(f"/login?next={quote(path)}", 303)
        return _unauthorised()


def _most_bytes(path: str) -> int:
    if path == UPLOAD:
        return UPLOAD_BYTES
    return API_BYTES if path.startswith(API) or path.endswith(TRY) else FORM_BYTES


def _limited(receive: Receive, path: str) -> Receive:
    """Limit the received bytes, because a body sent in chunks has no length header."""
    got = 0

    async def receiving() -> MutableMapping[str, Any]:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > _most_bytes(path):
            raise HTTPException(413, _too_large(path))
        return message

    return receiving


def _too_large(path: str) -> str:
    cures = {UPLOAD: "register an address, or use `loopline new NAME --from FILE`", TRY: "use `loopline predict`"}
    cure = next((cure for end, cure in cures.items() if path.endswith(end)), "send it in parts")
    return f"the request is larger than {_most_bytes(path):,} bytes: {cure}"


def _unauthorised() -> Response:
    text = "a token is needed: send `Authorization: Bearer TOKEN`; it lies in .loopline/overview/token"
    return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
