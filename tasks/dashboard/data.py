"""The pages of the data: all versions, one column by column, two side by side; and its files."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from models.report.data_pages.page import DataVersion, PageContext, render_against, render_data, render_list
from models.validation.data_profile import DataProfile
from tasks.dashboard.data_versions import find_data, newest_data
from tasks.dashboard.session import logout_token
from tasks.host.workspace import Project, Workspace
from tasks.loop.loop_pages import data_file
from tasks.operations import overview
from tasks.operations.spec_cache import shows_rows
from tasks.state import shared_files
from tasks.tools import dvc_view

MOST_OF_EACH, MOST_OF_ONE = 3, 50
"""Versions of the data that the page of all projects lists of each, and the page of one project."""
FILES = {"raw.parquet": "raw", "rows.parquet": "data"}
"""The files that may be downloaded, and the hash of the folder that each lies in."""


def data_list(request: Request) -> Response:
    """Return the page of the versions of the data: the newest of all projects, or those of one."""
    workspace, chosen = _workspace(request), request.query_params.get("project", "")
    names = [overview.name_of(project) for project in overview.known_projects(workspace)]
    if chosen and chosen not in names:
        raise HTTPException(404, "There is no project of that name.")
    if chosen:
        versions = newest_data(workspace.state, [chosen], MOST_OF_ONE)[chosen]
        listed = {chosen: [_with_source(workspace, version) for version in versions]}
    else:  # of a hundred projects no file of each version is read
        listed = newest_data(workspace.state, names, MOST_OF_EACH)
    return HTMLResponse(render_list(listed, _context(request), chosen))


def data(request: Request) -> Response:
    """Return the page of a version of the data; with `against`, that of two versions side by side."""
    workspace = _workspace(request)
    version = _version(request, request.path_params["data"])
    if version.data != request.path_params["data"]:  # of the raw data
        return RedirectResponse(f"/data/{version.data}", 303)
    profile = profile_of(workspace, version.project, version.data)
    if against := request.query_params.get("against"):
        before = _version(request, against)
        return HTMLResponse(
            render_against(
                before, version, (profile_of(workspace, before.project, before.data), profile), _context(request)
            )
        )
    versions = newest_data(workspace.state, [version.project], MOST_OF_ONE)[version.project]
    siblings = [sibling for sibling in versions if sibling.data != version.data]
    files = [name for name in FILES if _file(workspace, version, name)]
    if profile:
        version = replace(version, source=profile.source)
    return HTMLResponse(render_data(version, profile, siblings, files, _context(request)))


def file(request: Request) -> Response:
    """Return a file of the data, from a fixed list, where its rows may be shown."""
    version = _version(request, request.path_params["data"])
    path = _file(_workspace(request), version, request.path_params["file"])
    if path is None:
        raise HTTPException(404, "There is no such file here, or data.show_rows says that rows are not shown.")
    name = f"{version.project}-{version.data[:8]}-{request.path_params['file']}"
    return FileResponse(path, media_type="application/vnd.apache.parquet", filename=name)


def _workspace(request: Request) -> Workspace:
    workspace: Workspace = request.app.state.workspace
    return workspace


def _context(request: Request) -> PageContext:
    return PageContext(time.time(), logout_token(request))


def _version(request: Request, data_hash: str) -> DataVersion:
    version = find_data(_workspace(request).state, data_hash)
    if version is None:
        raise HTTPException(404, "There is no data of that hash, or a clean-up has removed it and all that named it.")
    return version


def profile_of(workspace: Workspace, project: str, data_hash: str) -> DataProfile | None:
    """Return what the data is like, without rows where the current spec says so; None: it was not recorded."""
    state = workspace.state / "projects" / project
    path = data_file(state, data_hash)
    if not path.is_file():
        shared_files.refresh(state, path)
    profile = DataProfile.read(path.read_text()) if path.is_file() else None
    return profile if profile is None or _shows_rows(workspace, project) else profile.without_rows()


def _with_source(workspace: Workspace, version: DataVersion) -> DataVersion:
    profile = profile_of(workspace, version.project, version.data)
    return replace(version, source=profile.source) if profile else version


def _shows_rows(workspace: Workspace, name: str) -> bool:
    project = overview.project_named(workspace, name)
    return project is not None and shows_rows(project)


def _file(workspace: Workspace, version: DataVersion, name: str) -> Path | None:
    project: Project | None = overview.project_named(workspace, version.project)
    if project is None or name not in FILES or not _shows_rows(workspace, version.project):
        return None
    return dvc_view.cached_file(project, str(getattr(version, FILES[name])), name)


ROUTES = [
    Route("/data", data_list),
    Route("/data/{data}", data),
    Route("/data/{data}/{file}", file),
]
