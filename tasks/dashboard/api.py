"""The dashboard's API: labels, and requests to retrain. Every call needs the token, on loopback too.

pyarrow is imported only when labels first arrive: a server that only shows pages stays small.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from models.errors import LooplineError, StoreError
from tasks.dashboard.approvals import request_retraining
from tasks.host.workspace import Project, Workspace
from tasks.operations import overview

MOST_CHARACTERS = 500
BY = "http"


async def labels(request: Request) -> Response:
    """Store labels, all or none: a CSV file, or JSON rows such as `[{"id": "f-1", "label": "yes"}]`."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    take = _labels_of_csv if kind == "text/csv" else _labels_of_json
    return await run_in_threadpool(_respond, take, project_of(request), body)


def _respond(take: Callable[[Project, bytes], dict[str, int]], project: Project, body: bytes) -> Response:
    try:
        return JSONResponse(take(project, body))
    except StoreError as error:
        raise HTTPException(503, str(error)) from error
    except LooplineError as error:
        raise HTTPException(422, str(error)) from error


def _labels_of_csv(project: Project, body: bytes) -> dict[str, int]:
    from tasks.operations.label import accept_file

    spec = project.spec()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        path.write_bytes(body)
        return accept_file(project, spec, path, labeller=BY)


def _labels_of_json(project: Project, body: bytes) -> dict[str, int]:
    import pyarrow as pa

    from tasks.operations.label import accept

    rows = _json(body)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise HTTPException(400, 'The body is not a list of rows such as [{"id": "f-1", "label": "yes"}].')
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise HTTPException(422, f"A column holds values of several kinds: {error}") from error
    return accept(project, project.spec(), table, labeller=BY)


async def trigger(request: Request) -> Response:
    """Request a retraining: `{"reason": "...", "id": "..."}`, both optional; requests with the same id count once."""
    payload = _object(await request.body())
    return await run_in_threadpool(_trigger, request, payload)


def _trigger(request: Request, payload: dict[str, Any]) -> Response:
    workspace: Workspace = request.app.state.workspace
    name = overview.name_of(project_of(request))
    reason = _text(payload, "reason") or "a program asked over HTTP"
    try:
        signal, is_delivered = request_retraining(workspace, name, reason, _text(payload, "id") or None)
    except LooplineError as error:
        raise HTTPException(503, str(error)) from error
    return JSONResponse({"project": name, "signal": signal.id, "delivered": is_delivered}, 202)


def project_of(request: Request) -> Project:
    """Return the project that the path names.

    Raises:
        HTTPException: 404, there is no such project.
    """
    project = overview.project_named(request.app.state.workspace, request.path_params["name"])
    if project is None:
        raise HTTPException(404, "There is no project of that name.")
    return project


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The body is not JSON.") from error


def _object(body: bytes) -> dict[str, Any]:
    value = _json(body or b"{}")
    if not isinstance(value, dict):
        raise HTTPException(400, 'The body is not a JSON object such as {"reason": "a new batch came"}.')
    return value


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name, "")
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        raise HTTPException(400, f"{name}: expected a text of at most {MOST_CHARACTERS} characters.")
    return " ".join(value.split())


ROUTES = [
    Route("/labels/{name}", labels, methods=["POST"]),
    Route("/trigger/{name}", trigger, methods=["POST"]),
]
