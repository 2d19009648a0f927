"""The page of a spec: fields for its keys of data, the difference that they make, and its write as a commit."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from models.errors import LooplineError, UsageError
from models.files import SPEC_FILE, storing, write_text
from models.report.overview_page import Link, render_message
from models.report.spec_pages.page import SpecForm, render_difference, render_spec
from models.scaffold.edits import EDITABLE, difference, editable_keys, edited, errors_by_key, values_of
from tasks.dashboard import api
from tasks.dashboard.actions import reason_of
from tasks.dashboard.drafting import DraftRequest, drafted
from tasks.dashboard.repository import commit, deploy
from tasks.dashboard.session import checked_form, page_form
from tasks.dashboard.uploads import columns_of
from tasks.host.workspace import Project
from tasks.operations import overview as gathering
from tasks.state.step_records import latest_records

_writing = threading.Lock()


def show(request: Request) -> Response:
    """Return the page of a project's spec."""
    project = _project(request)
    text = _text(project)
    try:
        return _page(request, project, text, values_of(text))
    except UsageError as error:
        return _page(request, project, text, {}, {"": str(error)})


async def change(request: Request) -> Response:
    """Show the difference that a form makes, or write it."""
    form = await checked_form(request, max_fields=2 * len(EDITABLE))
    return await run_in_threadpool(_change, request, form)


def _change(request: Request, form: FormData) -> Response:
    project = _project(request)
    text, fields = _text(project), _fields(form)
    _refuse_changed(form, text)
    if form.get("step") == "edit":
        return _page(request, project, text, fields)
    try:
        after = edited(text, fields)
        if after == text:
            raise UsageError("nothing was changed: change a field")
        _check(project, after)
    except LooplineError as error:
        return _page(request, project, text, fields, errors_by_key(str(error)))
    if form.get("step") == "write":
        return _write(request, project, form, after)
    spec = _spec_form(project, text, fields)
    lines = difference(text, after, spec.path)
    return HTMLResponse(render_difference(page_form(request, request.url.path), spec, lines))


def _write(request: Request, project: Project, form: FormData, after: str) -> Response:
    with _writing:
        _refuse_changed(form, _text(project))
        write_text(project.spec_path, after)
    name = request.path_params["name"]
    lines = [f"{SPEC_FILE} of {name} is written.", commit(project, [SPEC_FILE], _message(name, form))]
    deploy(project)
    lines.append("The next loop runs the steps that the change concerns.")
    path = f"/projects/{project.spec().name}"
    links = [Link("Its page", path), Link("Train it", f"{path}/retrain"), Link("Its spec", f"{path}/spec")]
    return HTMLResponse(render_message("Done", lines, links))


def _message(name: str, form: FormData) -> str:
    return f"Change the spec of {name}\n\n{reason_of(form)}"


def _check(project: Project, text: str) -> None:
    """Check a changed spec as a run would, in a child process, which knows the columns of its data too.

    Raises:
        UsageError: It has mistakes.
        StoreError: The repository cannot be written.
    """
    path = project.folder / f".{SPEC_FILE}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        write_text(path, text)
        result = drafted(project.workspace, DraftRequest(task="check", source=str(path), name=SPEC_FILE))
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    if result.error:
        raise UsageError(result.error)


def _page(
    request: Request,
    project: Project,
    text: str,
    values: Mapping[str, str],
    reasons: Mapping[str, str] | None = None,
) -> Response:
    reasons = reasons or {}
    spec = _spec_form(project, text, values, reasons)
    return HTMLResponse(
        render_spec(page_form(request, request.url.path, reasons.get("", "")), spec), 422 if reasons else 200
    )


def _spec_form(
    project: Project, text: str, values: Mapping[str, str], reasons: Mapping[str, str] | None = None
) -> SpecForm:
    path = str(project.spec_path.relative_to(project.workspace.root))
    keys = list(editable_keys().values()) if values else []
    return SpecForm(
        project.folder.name, path, text, _digest(text), keys, values, reasons or {}, _columns(project) if keys else []
    )


def _columns(project: Project) -> list[str]:
    """Return the columns of the project's data: those of the last loop, else of the upload of which it was made."""
    name = gathering.name_of(project)
    if ingest := latest_records(project.workspace.state, [name], ["ingest"])[name].get("ingest"):
        return [str(column["name"]) for column in ingest.result["schema"]]
    return columns_of(project.workspace, project.folder.name)


def _fields(form: FormData) -> dict[str, str]:
    return {key: str(form.get(key, "")).replace("\r\n", "\n") for key in EDITABLE}


def _project(request: Request) -> Project:
    project = api.project_of(request)
    if not project.inside:
        raise HTTPException(404, "This project lies outside of the workspace: its spec is changed there alone.")
    return project


def _text(project: Project) -> str:
    try:
        with storing(project.spec_path):
            return project.spec_path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise HTTPException(409, f"{SPEC_FILE} cannot be read as UTF-8: correct the file.") from error


def _refuse_changed(form: FormData, text: str) -> None:
    if form.get("digest") != _digest(text):
        raise HTTPException(409, f"{SPEC_FILE} was changed meanwhile: nothing was written. Look at it again.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


ROUTES = [
    Route("/projects/{name}/spec", show, methods=["GET"]),
    Route("/projects/{name}/spec", change, methods=["POST"]),
]
