"""The HTTP application of one worker: its routes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from typing import cast

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from models.serving.http_errors import RequestError
from models.serving.open_api import document
from tasks.release.settings import ServerSettings
from tasks.serve import feedback, health, open_inference, scoring, webhook
from tasks.serve.bodies import answered, json_response
from tasks.serve.calls import exact_endpoints
from tasks.serve.metric_files import forget_dead_workers
from tasks.serve.middleware import ServerMiddleware
from tasks.serve.open_inference import own_version
from tasks.serve.state import WorkerState

COLLECT = (20_000, 10, 10)
"""Thresholds of garbage collection: by Python's own, a request of 1,000 rows spends a twentieth of its CPU there."""
LOOK_S = 1.0
WAITING_LOOKS = 10
LINGER_S = 0.5
"""Seconds in which a server that ends still takes requests, and answers each as the last of its connection."""


def application() -> ASGIApp:
    """Build a worker's application from the settings in the environment, with the middleware before all routes."""
    gc.set_threshold(*COLLECT)
    settings = ServerSettings.handed()
    app = make(settings)
    exact = exact_endpoints({**scoring.CALLS, **open_inference.CALLS}, settings.projects)
    return ServerMiddleware(app, _state(app), exact)


def make(settings: ServerSettings) -> Starlette:
    """Build the application that serves the released versions."""
    app = Starlette(
        routes=[
            *health.ROUTES,
            *scoring.ROUTES,
            *open_inference.ROUTES,
            *feedback.ROUTES,
            Route("/openapi.json", _openapi),
            *webhook.ROUTES,
        ],
        exception_handlers={HTTPException: _refused, RequestError: _refusal_response, 500: _failed},
        lifespan=_following,
    )
    app.state = WorkerState.of(settings)  # type: ignore[assignment]
    return app


@contextlib.asynccontextmanager
async def _following(app: Starlette) -> AsyncIterator[None]:
    state = _state(app)
    forget_dead_workers()
    _end_with_parent()
    _end_late(state)
    for loaded in state.loaded.values():
        await loaded.refresh()
    following = [asyncio.create_task(loaded.follow()) for loaded in state.loaded.values()]
    following.append(asyncio.create_task(_look(state)))
    try:
        async with _over_grpc(state):
            yield
            state.is_ending = True
    finally:
        for task in following:
            task.cancel()
        await asyncio.to_thread(state.engine.close)


def _state(app: Starlette) -> WorkerState:
    """Return the worker's state; Starlette does not type it."""
    return cast("WorkerState", app.state)


async def _look(state: WorkerState) -> None:
    """Update the gauges regularly: another worker may answer the request for the metrics."""
    looks = 0
    while True:
        state.metrics.look(state.engine, state.loaded)
        if looks % WAITING_LOOKS == 0:
            for name, prediction_logger in state.prediction_loggers.items():
                with contextlib.suppress(OSError):
                    state.metrics.waiting_bytes(name, await asyncio.to_thread(prediction_logger.waiting_bytes))
        looks += 1
        await asyncio.sleep(LOOK_S)


def _end_with_parent() -> None:
    """End this worker with SIGTERM when its parent process dies: nothing else would restart or end it."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(parent.sentinel)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(parent.sentinel, end)


def _end_late(state: WorkerState) -> None:
    """Have SIGTERM first tell callers, with each answer, that their connections end, and then uvicorn.

    uvicorn cuts kept connections at once, also those on which a request is on its way.
    """
    loop = asyncio.get_running_loop()
    end = signal.getsignal(signal.SIGTERM)

    def begin_to_end() -> None:
        state.is_ending = True
        if callable(end):
            loop.call_later(LINGER_S, end, signal.SIGTERM, None)

    loop.add_signal_handler(signal.SIGTERM, begin_to_end)


@contextlib.asynccontextmanager
async def _over_grpc(state: WorkerState) -> AsyncIterator[None]:
    """Run the gRPC server if a port is set; the gRPC library is imported only then."""
    if not state.settings.grpc_port:
        yield
        return
    from tasks.serve.grpc import server as grpc_server

    server = await grpc_server.start(state)
    try:
        yield
    finally:
        await server.stop(grpc_server.GRACE_S)


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    words = {
        404: "there is no such address: /openapi.json lists all of them",
        405: f"got {request.method[:20]}, expected {headers.get('Allow', 'another method')}",
    }
    return json_response({"error": words.get(error.status_code, error.detail)}, error.status_code, headers)


def _refusal_response(_: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, RequestError)
    return json_response({"error": str(refusal)}, refusal.status, refusal.headers)


def _failed(_: Request, __: Exception) -> Response:
    return json_response({"error": "something went wrong here; the server's log says what"}, 500)


async def _openapi(request: Request) -> Response:
    """Return the OpenAPI document; models without a loaded version are left out."""
    state = request.app.state
    stable = {name: loaded.pick("") for name, loaded in state.loaded.items() if loaded.is_ready}
    models = {name: model for name, model in stable.items() if model is not None}
    body = orjson.dumps(document(models, own_version(), needs_token=not state.access.is_open))
    response = answered(request.headers, body, {})
    return Response(response.body, response.status, response.headers)
