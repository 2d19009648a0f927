"""The pages of a project's versions; each version has an address that later loops do not change."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from models.judge.worst_rows import WORST_FILE, WorstExamples
from models.report.facts import Overview, ProjectFacts
from models.report.overview_page import Link
from models.report.version_page import VersionSummary, render_against, render_version, render_versions, render_worst
from models.serving.registry import RegisteredVersion
from tasks.dashboard import api
from tasks.dashboard.session import logout_token
from tasks.dashboard.version_files import contents_of, file_of, importances_of
from tasks.host.workspace import Workspace
from tasks.mlflow import model_cache
from tasks.mlflow.model_cache import stored_file
from tasks.operations.overview import name_of, overview
from tasks.operations.spec_cache import shows_rows
from tasks.platform.report_pages import PAGE_NAMES, loop_pages, loop_path_of
from tasks.state.champion_moves import moves_of
from tasks.state.versions import StoredVersion, version_of, versions_of

DOWNLOADS = {
    "model.onnx": "the model (ONNX)",
    "preparation.json": "its inputs and preparation",
    "spec.json": "its spec",
    "verdict.json": "its verdict",
}
"""The files of a version that a person may download, and what they are in words."""
MOST_VERSIONS = 50
"""The number of newest versions that a page lists: of each a file with its verdict is read."""


def versions(request: Request) -> Response:
    """Return the page of all versions of a project."""
    workspace, seen = _seen(request)
    project = seen.projects[0]
    stored = versions_of(workspace.state, project.name)[-MOST_VERSIONS:]
    facts = [_facts(version, project) for version in stored]
    return HTMLResponse(render_versions(project.name, facts, project.loop, seen.at, logout_token(request)))


def version(request: Request) -> Response:
    """Return the page of a version; with `against` in the address, it and another one side by side."""
    workspace, seen = _seen(request)
    project, number = seen.projects[0], request.path_params["version"]
    stored = stored_version(workspace, project.name, number)
    if against := request.query_params.get("against"):
        both = (stored, stored_version(workspace, project.name, against))
        ours, theirs = (contents_of(workspace, project.name, row.registered) for row in both)
        html = render_against(project.name, ours, theirs, project.loop, seen.at, logout_token(request))
        return HTMLResponse(html)
    moves = [move for move in moves_of(workspace.state, project.name) if number in (move.before, move.after)]
    card, links = _links(workspace, seen, stored.registered)
    facts = _facts(
        stored,
        project,
        moves=moves,
        card=card,
        links=links,
        downloads=_downloads(project.name, stored.registered),
        importances=importances_of(workspace, project.name, stored.registered),
        comparable=[
            row.number
            for row in reversed(versions_of(workspace.state, project.name)[-MOST_VERSIONS:])
            if row.number != number
        ],
    )
    return HTMLResponse(render_version(project.name, facts, project.loop, seen.at, logout_token(request)))


def worst(request: Request) -> Response:
    """Return the page of the test rows on which a version is furthest off."""
    workspace, seen = _seen(request)
    project = seen.projects[0]
    version = stored_version(workspace, project.name, request.path_params["version"]).registered
    path = file_of(workspace, project.name, version, WORST_FILE)
    examples = WorstExamples.model_validate_json(path.read_bytes()) if path else None
    if examples and not shows_rows(api.project_of(request)):  # it may say so only since
        examples = examples.without_rows()
    html = render_worst(project.name, version, examples, project.loop, seen.at, logout_token(request))
    return HTMLResponse(html)


def download(request: Request) -> Response:
    """Return a file of a version, from a fixed list, as it was registered."""
    workspace: Workspace = request.app.state.workspace
    name = name_of(api.project_of(request))
    stored = stored_version(workspace, name, request.path_params["version"])
    file = request.path_params["file"]
    path = stored_file(workspace, name, stored.registered, file) if file in DOWNLOADS else None
    if path is None:
        raise HTTPException(404, "There is no such file.")
    return FileResponse(path, filename=f"{name}-{stored.number}-{file}", headers={"Content-Security-Policy": "sandbox"})


def stored_version(workspace: Workspace, project: str, number: str) -> StoredVersion:
    """Return a version.

    Raises:
        HTTPException: 404, there is no such version.
    """
    stored = version_of(workspace.state, project, number)
    if stored is None:
        raise HTTPException(404, f"{project} has no version {number}, or it was removed.")
    return stored


def _downloads(project: str, version: RegisteredVersion) -> list[Link]:
    base = f"/projects/{quote(project, safe='')}/versions/{quote(version.number, safe='')}/files"
    return [Link(words, f"{base}/{name}") for name, words in DOWNLOADS.items() if name in version.hashes]


def _seen(request: Request) -> tuple[Workspace, Overview]:
    workspace: Workspace = request.app.state.workspace
    return workspace, overview(workspace, [api.project_of(request)])


def _facts(stored: StoredVersion, project: ProjectFacts, **optional: Any) -> VersionSummary:
    places = {"champion": project.champion, "challenger": project.challenger}
    role = next((name for name, place in places.items() if place and place.number == stored.number), "")
    return VersionSummary(model_cache.with_verdict(project.name, stored.registered), stored.at, role, **optional)


def _links(workspace: Workspace, seen: Overview, version: RegisteredVersion) -> tuple[str, list[Link]]:
    """Return the path of a version's card, and links to its loop's other pages and to the version in MLflow."""
    project, loop_id = seen.projects[0].name, version.loop_id
    names = loop_pages(workspace.state / "projects" / project, loop_id, is_shared=True)
    paths = {name: loop_path_of(project, loop_id, name) for name in names}
    card = paths.pop("card", "")
    links = [Link(PAGE_NAMES[name], path) for name, path in paths.items()]
    service = seen.services.get("mlflow")
    if service and service.url:
        address = f"{service.url.rstrip('/')}/#/models/{quote(project, safe='')}/versions/{version.number}"
        links.append(Link("the version in MLflow", address))
    return card, links


ROUTES = [
    Route("/projects/{name}/versions", versions),
    Route("/projects/{name}/versions/{version}", version),
    Route("/projects/{name}/versions/{version}/worst", worst),
    Route("/projects/{name}/versions/{version}/files/{file}", download),
]
