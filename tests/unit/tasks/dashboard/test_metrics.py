"""Prometheus reads what waits to be carried; others read nothing."""

import asyncio

import httpx

from tasks.dashboard.app import application
from tasks.host.http_guard import token_of
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.state.outbox import LOOP_RUN, Outbox


def answer(workspace: Workspace, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(application(workspace, "127.0.0.1"))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/metrics", headers=headers)

    return asyncio.run(ask())


def test_what_waits_is_told_to_who_has_the_token(workspace: Workspace) -> None:
    workspace.make()
    state = workspace.state / "projects" / "tiny"
    save_loop(state, LoopRecord("tiny-1", "killed", began=1.0))
    Outbox(state, "tiny-1").start_run(LOOP_RUN, "tiny", {})
    told = answer(workspace, Authorization=f"Bearer {token_of(workspace)}")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'loopline_waiting{project="tiny",rows="logs",tool="MLflow"} 1.0' in told.text
    assert 'loopline_waiting_seconds{project="tiny",rows="logs",tool="MLflow"}' in told.text


def test_nothing_is_told_without_it(workspace: Workspace) -> None:
    workspace.make()
    assert "loopline_waiting" not in answer(workspace).text
