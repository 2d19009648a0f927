"""The short way to the addresses that are asked most: an exact path is looked up, not matched with every pattern.

Starlette's router, its two layers of error handling and its wrapping of each endpoint cost as much as the answer of a
small model. Paths whose only parameter is the name of a served model become exact ones; all others take the long way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]
_NAME = "{name}"
_HEADERS = "loopline.headers"


def headers_of(scope: Scope) -> dict[str, str]:
    """By name in lower case, decoded once a request; of those that are sent twice the first, as Starlette has it."""
    found: dict[str, str] | None = scope.get(_HEADERS)
    if found is None:
        pairs = reversed(scope["headers"])
        found = scope[_HEADERS] = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
    return found


class Asked(Request):
    """A request whose headers are decoded once, and whose body is read without a generator."""

    @property
    def headers(self) -> Any:
        """See `headers_of`."""
        return headers_of(self.scope)

    async def body(self) -> bytes:
        """All of it.

        Raises:
            ClientDisconnect: The caller left first.
        """
        if not hasattr(self, "_body"):
            parts = []
            while True:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    break
            self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        return self._body


class Dispatch:
    """An application in front of another, with the same addresses; errors are left to whoever stands before it."""

    def __init__(self, app: Starlette, names: Iterable[str]) -> None:
        self._app = app
        self._exact: dict[tuple[str, str], tuple[Endpoint, dict[str, Any]]] = {}
        for route in app.routes:
            if isinstance(route, Route) and route.methods:
                self._add(route, names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the endpoint of an exact path, else as the application does."""
        found = self._exact.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        endpoint, params = found
        scope["app"], scope["path_params"] = self._app, params
        response = await endpoint(Asked(scope, receive, send))
        await response(scope, receive, send)

    def _add(self, route: Route, names: Iterable[str]) -> None:
        given = {"": {}} if not route.param_convertors else {name: {"name": name} for name in names}
        if set(route.param_convertors) - {"name"}:
            return
        for name, params in given.items():
            for method in route.methods or ():
                self._exact.setdefault((method, route.path.replace(_NAME, name)), (route.endpoint, params))
