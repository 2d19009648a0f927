"""Health checks and metrics: is the process alive, can it answer, what has it done.

`/health` is liveness: a server that fails it should be restarted. `/ping` is readiness: a server that fails it should
get no requests until it is ready. They differ while the first version is not loaded yet, and while the server ends.
"""

from __future__ import annotations

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tasks.serve import metrics
from tasks.serve.state import WorkerState


def why_dead(state: WorkerState) -> str | None:
    """Return why this process should be restarted; None while it works."""
    return "a call has not ended for a minute" if state.engine.is_stuck else None


def why_not_ready(state: WorkerState) -> str | None:
    """Return why no request should be sent here now; None while every model can answer."""
    if state.is_ending:
        return "the server is ending"
    empty = [name for name, loaded in state.loaded.items() if not loaded.is_ready]
    return f"no version is loaded yet of {', '.join(empty)}" if empty else why_dead(state)


async def live(request: Request) -> Response:
    """Answer the liveness probe."""
    return _response(why_dead(request.app.state))


async def ready(request: Request) -> Response:
    """Answer the readiness probe."""
    return _response(why_not_ready(request.app.state))


async def metrics_text(request: Request) -> Response:
    """Return the metrics of all workers."""
    state = request.app.state
    state.metrics.look(state.engine, state.loaded)
    return Response(await run_in_threadpool(state.metrics.text), media_type=metrics.CONTENT_TYPE)


def _response(why_not: str | None) -> Response:
    if why_not is None:
        return Response(b'{"status":"ok"}', media_type="application/json")
    return Response(orjson.dumps({"error": why_not}), 503, {"retry-after": "1"}, "application/json")


ROUTES = [Route("/health", live), Route("/ping", ready), Route("/metrics", metrics_text)]
