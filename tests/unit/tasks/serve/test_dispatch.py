"""The short way answers as the long one does."""

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tasks.serve.dispatch import Asked, Dispatch


async def said(request: Request) -> Response:
    body = await request.body()
    headers = request.headers
    return PlainTextResponse(
        f"{type(request).__name__} {request.path_params} {body.decode()} {headers.get('x-a')} {request.app.state.mark}"
    )


def ask(method: str, path: str) -> tuple[int, str]:
    """Status and text of the answer to a request with a body and a header."""
    routes = [
        Route("/say", said, methods=["POST"]),
        Route("/models/{name}/say", said, methods=["POST"]),
        Route("/models/{name}/versions/{version}/say", said, methods=["POST"]),
    ]
    app = Starlette(routes=routes)
    app.state.mark = "here"
    met: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"body", "more_body": False}

    async def send(message: Any) -> None:
        met.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"x-a", b"1")], "query_string": b""}
    asyncio.run(Dispatch(app, ["tiny"])(scope, receive, send))
    return met[0]["status"], met[1]["body"].decode()


@pytest.mark.parametrize(
    ("path", "kind", "params"),
    [
        ("/say", "Asked", {}),
        ("/models/tiny/say", "Asked", {"name": "tiny"}),
        ("/models/other/say", "Request", {"name": "other"}),
        ("/models/tiny/versions/3/say", "Request", {"name": "tiny", "version": "3"}),
    ],
)
def test_an_exact_path_goes_the_short_way_with_the_same_answer(path: str, kind: str, params: dict[str, str]) -> None:
    assert ask("POST", path) == (200, f"{kind} {params} body 1 here")


def test_what_is_not_there_is_the_applications_to_say() -> None:
    assert ask("POST", "/nowhere")[0] == 404
    assert ask("GET", "/say")[0] == 405


def test_a_body_in_parts_is_put_together_and_one_cut_short_is_not_taken() -> None:
    def asked(messages: list[dict[str, object]]) -> Asked:
        left = list(messages)

        async def receive() -> dict[str, object]:
            return left.pop(0)

        return Asked({"type": "http", "headers": [(b"a", b"1"), (b"a", b"2")]}, receive)  # type: ignore[arg-type]

    first = {"type": "http.request", "body": b"ab", "more_body": True}
    whole = asked([first, {"type": "http.request", "body": b"c"}])
    assert asyncio.run(whole.body()) == b"abc"
    assert asyncio.run(whole.body()) == b"abc"
    assert whole.headers["a"] == Request(whole.scope).headers["a"] == "1"
    with pytest.raises(ClientDisconnect):
        asyncio.run(asked([first, {"type": "http.disconnect"}]).body())
