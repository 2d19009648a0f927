"""Requests and responses of a prediction over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from tasks.serve.state import WorkerState

_NAME = "{name}"


@dataclass(slots=True)
class HttpRequest:
    """A request.

    Args:
        state: The worker's state.
        headers: Values by lower-case name; of a header that was sent twice, the first value.
        body: The body as it was sent.
        params: The path parameters.
        query: The query string, without the question mark.
    """

    state: WorkerState
    headers: Mapping[str, str]
    body: bytes
    params: Mapping[str, str]
    query: bytes = b""


@dataclass(slots=True)
class HttpResponse:
    """A response. `headers`: all headers except the date and those of the connection."""

    body: bytes
    headers: dict[str, str]
    status: int = 200


Endpoint = Callable[[HttpRequest], Awaitable[HttpResponse]]


def named(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return raw headers by lower-case name; of a header that was sent twice, the first value, as in Starlette."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(headers)}


def route(path: str, endpoint: Endpoint) -> Route:
    """Make a Starlette route from an endpoint."""

    async def answered(request: Request) -> Response:
        query = request.scope["query_string"]
        call = HttpRequest(request.app.state, request.headers, await request.body(), request.path_params, query)
        response = await endpoint(call)
        return Response(response.body, response.status, response.headers)

    return Route(path, answered, methods=["POST"])


class ExactEndpoint(NamedTuple):
    """An endpoint at one exact address, with the values of its path parameters."""

    endpoint: Endpoint
    params: Mapping[str, str]


def exact_endpoints(endpoints: Mapping[str, Endpoint], names: Iterable[str]) -> dict[str, ExactEndpoint]:
    """Return the addresses that have no parameter but the name of a served model, with the names filled in."""
    exact = {}
    for path, endpoint in endpoints.items():
        for name in names if _NAME in path else [""]:
            exact[path.replace(_NAME, name)] = ExactEndpoint(endpoint, {"name": name} if name else {})
    return {path: endpoint for path, endpoint in exact.items() if "{" not in path}
