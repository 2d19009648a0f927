"""The pages that make a project: a file or an address, what was read of it, and the project that is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from models.errors import LooplineError, UsageError
from models.files import SPEC_FILE
from models.project_spec.blocks import NAME_PATTERN
from models.report.overview_page import Link, render_message
from models.report.spec_pages.page import DraftedSpec, render_draft, render_new
from tasks.dashboard import uploads
from tasks.dashboard.actions import reason_of, text_of
from tasks.dashboard.drafting import DraftRequest, drafted
from tasks.dashboard.guard import UPLOAD_BYTES
from tasks.dashboard.repository import commit, deploy
from tasks.dashboard.session import checked_form, page_form
from tasks.dashboard.uploads import Draft
from tasks.host.workspace import Project, Workspace
from tasks.operations.overview import project_named


def new(request: Request) -> Response:
    """Return the page that takes a file or an address."""
    return _new(request)


async def begin(request: Request) -> Response:
    """Take a file or an address, read it, and lead to the page that shows it."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise HTTPException(411, "The length of the form is missing: send it from a browser.")
    await run_in_threadpool(uploads.refuse_full_disk, _workspace(request), int(length))
    form = await checked_form(request, max_files=1)
    try:
        return await run_in_threadpool(_begin, request, form)
    finally:
        await form.close()


def _begin(request: Request, form: FormData) -> Response:
    workspace = _workspace(request)
    folder = uploads.new_folder(workspace)
    try:
        draft_request = _request_of(workspace, folder, form)
        result = drafted(workspace, draft_request)
        if result.error:
            raise UsageError(result.error)
        uploads.store(folder, Draft(request=draft_request.model_copy(update={"name": result.name}), result=result))
    except LooplineError as error:
        uploads.remove(folder)
        return _new(request, str(error), {name: text_of(form, name) for name in ("address", "name", "part")})
    return RedirectResponse(f"/new/{folder.name}", 303)


def _request_of(workspace: Workspace, folder: Path, form: FormData) -> DraftRequest:
    """Return what a person's form asks to be read.

    Raises:
        UsageError: It names no data, or two, or the name cannot be had.
        StoreError: The file cannot be stored.
    """
    file, address, name = form.get("file"), text_of(form, "address"), text_of(form, "name")
    has_file = isinstance(file, UploadFile) and bool(file.filename)
    if has_file == bool(address):
        raise UsageError(f"got {'both' if address else 'neither'}, expected a file or an address: give one of them")
    if name:
        _refuse_name(workspace, name)
    if not isinstance(file, UploadFile) or address:
        return DraftRequest(task="draft", source=address, name=name)
    path, part = uploads.store_file(folder, file), text_of(form, "part")
    return DraftRequest(task="draft", source=f"{path}#{part}" if part else str(path), is_upload=True, name=name)


def show(request: Request) -> Response:
    """Return the page of new data: its columns, and the spec that would be written."""
    _, draft = _draft(request)
    return _created(draft.project) if draft.project else _show(request, draft)


async def go_on(request: Request) -> Response:
    """Read the data again with another target or name, or write the project."""
    form = await checked_form(request)
    return await run_in_threadpool(_go_on, request, form)


def _go_on(request: Request, form: FormData) -> Response:
    workspace, (folder, draft) = _workspace(request), _draft(request)
    if draft.project:
        return _created(draft.project)
    name, target = text_of(form, "name"), str(form.get("target", "")).strip() or draft.result.target
    is_new_target, is_looked_at = target != draft.result.target, form.get("step") != "create"
    draft_request = draft.request.model_copy(update={"name": name, "target": target})
    try:
        _refuse_name(workspace, name)
        if is_new_target or is_looked_at or name != draft.result.name:
            result = drafted(workspace, draft_request)
            if result.error:
                raise UsageError(result.error)
            draft = Draft(request=draft_request, result=result)
            uploads.store(folder, draft)
        if is_looked_at:
            return RedirectResponse(f"/new/{folder.name}", 303)
        if is_new_target:
            return _show(request, draft, "The spec has changed with the target: look through it, then create it.")
        project = uploads.make_project(workspace, folder, draft)
    except LooplineError as error:
        return _show(request, Draft(request=draft_request, result=draft.result), str(error))
    return _written(project, list(draft.result.files), reason_of(form))


def _written(project: Project, names: Sequence[str], reason: str) -> Response:
    """Commit the texts of a new project, not its rows, which would stay in a history for ever; say what comes next."""
    name = project.folder.name
    lines = [f"{project.spec_path.relative_to(project.workspace.root)} is written."]
    lines.append(commit(project, names, f"Add the project {name}\n\n{reason}"))
    lines.append("Next: change in its spec what was guessed wrong, then train it.")
    deploy(project)
    path = f"/projects/{name}"
    links = [Link("Train it", f"{path}/retrain"), Link("Its spec", f"{path}/spec"), Link("Its page", path)]
    return HTMLResponse(render_message(f"{name} is there", lines, links))


def _created(name: str) -> Response:
    lines = [f"The project {name} was created from this data. For another project of it, begin anew."]
    return HTMLResponse(
        render_message("It is created already", lines, [Link(f"Go to {name}", f"/projects/{name}")]), 409
    )


def _refuse_name(workspace: Workspace, name: str) -> None:
    """Check a name of a project.

    Raises:
        UsageError: It is none, or is taken.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"got the name {name[:80]!r}, expected lower-case letters, digits, - or _, a letter first")
    if (workspace.root / "projects" / name).exists() or project_named(workspace, name):
        raise UsageError(f"the name {name!r} is taken: choose another")


def _draft(request: Request) -> tuple[Path, Draft]:
    folder = uploads.folder_of(_workspace(request), request.path_params["upload"])
    draft = uploads.stored(folder) if folder else None
    if folder is None or draft is None:
        raise HTTPException(404, "There is no such upload, or no longer: it waits a day.")
    return folder, draft


def _new(request: Request, error: str = "", values: dict[str, str] | None = None) -> Response:
    page = render_new(
        page_form(request, "/new", error), UPLOAD_BYTES, values or {"address": "", "name": "", "part": ""}
    )
    return HTMLResponse(page, 422 if error else 200)


def _show(request: Request, draft: Draft, error: str = "") -> Response:
    draft_request, result = draft.request, draft.result
    source = Path(draft_request.source).name if draft_request.is_upload else draft_request.source
    spec = result.files[SPEC_FILE]
    facts = DraftedSpec(source, draft_request.name, result.target, result.names, result.columns, spec)
    return HTMLResponse(render_draft(page_form(request, request.url.path, error), facts), 422 if error else 200)


def _workspace(request: Request) -> Workspace:
    workspace: Workspace = request.app.state.workspace
    return workspace


ROUTES = [
    Route("/new", new, methods=["GET"]),
    Route("/new", begin, methods=["POST"]),
    Route("/new/{upload}", show, methods=["GET"]),
    Route("/new/{upload}", go_on, methods=["POST"]),
]
