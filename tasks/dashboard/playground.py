"""The page on which a person tries a version on a row or a picture, with its explanation."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from models.report.version_page import TriedRow, render_playground
from models.serving.playground_form import PlaygroundForm, PlaygroundRequest
from models.serving.registry import RegisteredVersion
from models.validation.data_profile import SampleRow
from tasks.dashboard import api
from tasks.dashboard.data import profile_of
from tasks.dashboard.data_versions import TAG
from tasks.dashboard.guard import API_BYTES
from tasks.dashboard.playground_pool import PlaygroundPool
from tasks.dashboard.session import checked_form, form_token, logout_token
from tasks.dashboard.versions import stored_version
from tasks.host.workspace import Workspace
from tasks.operations.overview import overview
from tasks.operations.spec_cache import shows_rows

MOST_FIELDS = 10_000
"""Columns of a form, and those that say what it is."""
CELL = "cell-"
"""How the names of the fields of columns begin; their numbers follow."""


class _Target(NamedTuple):
    """The version of a request, and the rows of its training data that may be shown, by their numbers."""

    workspace: Workspace
    version: RegisteredVersion
    columns: list[str]
    rows: dict[str, SampleRow]
    shows_rows: bool


def page(request: Request) -> Response:
    """Return the form of a version, filled with typical values or with a row of its data."""
    target = _target(request)
    pool: PlaygroundPool = request.app.state.playground
    with pool.process(target.workspace, request.path_params["name"], target.version) as process:
        form = process.form
    chosen = target.rows.get(request.query_params.get("row", ""))
    cells = dict(zip(target.columns, chosen.cells, strict=True)) if chosen else {}
    return _page(request, target, form, TriedRow(cells=cells))


async def post(request: Request) -> Response:
    """Return the same page with the answer of the version to the sent row."""
    sent = await checked_form(request, 1, MOST_FIELDS, max_field_bytes=API_BYTES)
    try:
        picture = sent.get("picture")
        content = await picture.read() if isinstance(picture, UploadFile) else b""
        return await run_in_threadpool(_answered, request, sent, content)
    finally:
        await sent.close()


def _answered(request: Request, sent: FormData, content: bytes) -> Response:
    target = _target(request)
    pool: PlaygroundPool = request.app.state.playground
    with pool.process(target.workspace, request.path_params["name"], target.version) as process:
        form = process.form
        question = _question(form, sent, content, target.rows)
        answer = process.answer(question) if process.is_ready else None
    return _page(request, target, form, TriedRow(answer, question.cells, question.rows))


def _question(
    form: PlaygroundForm, sent: Mapping[str, object], content: bytes, rows: Mapping[str, SampleRow]
) -> PlaygroundRequest:
    if "rows" in sent:
        return PlaygroundRequest(rows=str(sent["rows"]))
    if any(field.control == "file" for field in form.fields):
        sample = rows.get(str(sent.get("row", "")))
        return PlaygroundRequest(picture=sample.picture if sample else base64.b64encode(content).decode())
    cells = {field.name: str(sent.get(f"{CELL}{number}", "")) for number, field in enumerate(form.fields)}
    return PlaygroundRequest(cells=cells)


def _page(request: Request, target: _Target, form: PlaygroundForm, tried: TriedRow) -> Response:
    seen = overview(target.workspace, [api.project_of(request)])
    if not target.shows_rows:
        form = form.without_rows()
        if tried.answer:
            tried = tried._replace(answer=tried.answer.model_copy(update={"warnings": []}))
    tokens = form_token(request, request.url.path), logout_token(request)
    html = render_playground(target.version, form, tried, [*target.rows.values()], seen, tokens)
    has_failed = form.trouble or (tried.answer and tried.answer.trouble)
    return HTMLResponse(html, 422 if has_failed else 200)


def _target(request: Request) -> _Target:
    workspace: Workspace = request.app.state.workspace
    project = api.project_of(request)
    name = request.path_params["name"]
    version = stored_version(workspace, name, request.path_params["version"]).registered
    profile = profile_of(workspace, name, version.tags.get(TAG, ""))
    rows = {str(row.number): row for row in profile.sample} if profile else {}
    return _Target(workspace, version, profile.shown_columns if profile else [], rows, shows_rows(project))


ROUTES = [
    Route("/projects/{name}/versions/{version}/try", page, methods=["GET"]),
    Route("/projects/{name}/versions/{version}/try", post, methods=["POST"]),
]
