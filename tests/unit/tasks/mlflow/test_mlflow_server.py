"""Who is let in to MLflow's page; serving it is tests/integration's."""

import asyncio

import httpx
from starlette.responses import PlainTextResponse

from tasks.mlflow import mlflow_server


def test_who_lacks_the_secret_learns_no_more_than_that_it_is_up() -> None:
    app = mlflow_server.SecretMiddleware(PlainTextResponse("hello"), "loopline:the-secret")

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            users = (None, ("loopline", "another"), ("loopline", "the-secret"))
            return [await client.get("/health"), *[await client.get("/", auth=user) for user in users]]

    health, stranger, another, owner = asyncio.run(ask())
    assert (health.status_code, owner.text) == (200, "hello")
    assert stranger.status_code == another.status_code == 401
    assert stranger.headers["www-authenticate"].startswith("Basic ")
