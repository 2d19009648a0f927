"""The dashboard's application: routes and their handlers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from models.errors import StoreError
from models.report import overview_page
from models.report.facts import Overview, ProjectFacts
from models.report.overview_page import Link
from tasks.dashboard import (
    api,
    buttons,
    data,
    loops,
    metrics,
    new_project,
    playground,
    releases,
    session,
    spec_edit,
    versions,
)
from tasks.dashboard.data_versions import TAG
from tasks.dashboard.guard import API, HEADERS, REPORT_POLICY, DashboardGuard
from tasks.dashboard.playground_pool import PlaygroundPool
from tasks.dashboard.session import Sessions, cookie_of, logout_token
from tasks.host.http_guard import AccessRules, token_of
from tasks.host.workspace import Workspace
from tasks.loop.history import is_running, last_loop
from tasks.operations import overview as gathering
from tasks.platform.report_pages import PAGE_NAMES, PAGES, as_link, find_loop_page, find_page, loop_path_of, path_of
from tasks.state.store_sizes import measure
from tasks.state.versions import versions_of

MEASURE_EVERY_S = 120.0
GONE = (
    "There is no such page, or no longer: the pages of a loop stay while its version has an alias, and as many days as "
    "LOOPLINE_KEEP_WORK_DAYS says. MLflow has the card as an artifact of the loop's run."
)


def application(workspace: Workspace, host: str, names: Iterable[str] = ()) -> Starlette:
    """Return a workspace's dashboard that listens on `host`; `names` are further Host names, such as a proxy's.

    Raises:
        UsageError: LOOPLINE_DASHBOARD_TOKEN is too short to be safe.
        StoreError: The token's file cannot be written.
    """
    token = token_of(workspace)
    rules = AccessRules(host, [token], names)
    routes = [
        Route("/health", health),
        Route("/style.css", style),
        Route("/", index),
        Route("/projects/{name}", project),
        Route("/projects/{name}/events", project_events),
        Route("/projects/{name}/pages/{page}", report),
        Route("/projects/{name}/loops/{loop}/{page}", loop_report),
        *loops.ROUTES,
        *versions.ROUTES,
        *playground.ROUTES,
        *releases.ROUTES,
        *data.ROUTES,
        *new_project.ROUTES,
        *spec_edit.ROUTES,
        *buttons.ROUTES,
        *session.ROUTES,
        *api.ROUTES,
        *metrics.ROUTES,
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Sessions, token=token, cookie=cookie_of(workspace)),
            Middleware(DashboardGuard, rules=rules),
        ],
        exception_handlers={HTTPException: _refused, StoreError: _without_store, 500: _failed},
        lifespan=_measuring,
    )
    app.state.workspace = workspace
    app.state.rules = rules
    app.state.playground = PlaygroundPool()
    app.state.is_ending = lambda: False
    app.state.loop_views = {}
    return app


def health(_: Request) -> Response:
    """Return the health check; it has no other content, because it needs no token."""
    return JSONResponse({"status": "ok"})


def style(_: Request) -> Response:
    """Return the stylesheet."""
    return Response(
        overview_page.STYLESHEET.read_text(), media_type="text/css", headers={"Cache-Control": "max-age=60"}
    )


def index(request: Request) -> Response:
    """Return the page with all projects."""
    overview = gathering.overview(request.app.state.workspace, plans=False)
    words = request.query_params.get("words", "").strip()
    return HTMLResponse(overview_page.render_index(overview, logout_token(request), words))


def project(request: Request) -> Response:
    """Return the page of one project with its history."""
    overview = gathering.overview(request.app.state.workspace, [api.project_of(request)])
    facts = overview.projects[0]
    return HTMLResponse(
        overview_page.render_project(facts, overview.at, _links(overview, facts), logout_token(request))
    )


async def project_events(request: Request) -> Response:
    """Return the changes of a project's page as server-sent events, until nothing moves or the page is closed."""
    chosen = await run_in_threadpool(api.project_of, request)

    def newest_part() -> tuple[str, bool]:
        overview = gathering.overview(request.app.state.workspace, [chosen])
        facts = overview.projects[0]
        html = overview_page.render_project_live(facts, overview.at, _links(overview, facts))
        return html, not facts.is_moving

    return loops.stream(loops.changes(request, newest_part))


def report(request: Request) -> Response:
    """Return a step's newest report page, from a fixed list, so that a request cannot name a file."""
    state = _state(request)
    path = find_page(state, request.path_params["page"])
    if path is None:
        raise HTTPException(404, "There is no such page.")
    return _report(request, state, path)


def loop_report(request: Request) -> Response:
    """Return a report page of one loop, which stays what it was whatever later loops do."""
    state, loop_id = _state(request), request.path_params["loop"]
    path = find_loop_page(state, loop_id, request.path_params["page"])
    if path is None:
        raise HTTPException(404, GONE)
    return _report(request, state, path, _around(state, loop_id))


def _around(state: Path, loop_id: str) -> list[Link]:
    """Return links to the loop of a report, and to the version and the data that it made."""
    links = [Link("its loop", f"/loops/{quote(loop_id, safe='')}")]
    of_loop = [row for row in versions_of(state.parents[1], state.name) if row.registered.loop_id == loop_id]
    for version in of_loop[-1:]:
        path = f"/projects/{quote(state.name, safe='')}/versions/{quote(version.number, safe='')}"
        links.append(Link(f"version {version.number}", path))
        if data_hash := version.tags.get(TAG):
            links.append(Link("its data", f"/data/{quote(data_hash, safe='')}"))
    return links


def _state(request: Request) -> Path:
    project = api.project_of(request)
    return project.state(gathering.name_of(project))


def _report(request: Request, state: Path, path: Path, links: Iterable[Link] = ()) -> Response:
    name, text = request.path_params["name"], path.read_text()
    for name_of_page in PAGES:
        text = as_link(text, state.name, name_of_page)
    back = f'<a href="/projects/{quote(name, safe="")}">{escape(name)}</a> <a href="/">all projects</a>'
    around = "".join(f' <a href="{escape(link.address)}">{escape(link.name)}</a>' for link in links)
    text = text.replace("<main>", f"<main><nav>{back}{around}{_running(state)}</nav>", 1)
    return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})


def _running(state: Path) -> str:
    """Return a link to the loop that runs now, if one does."""
    last = last_loop(state)
    if last is None or not is_running(state, last):
        return ""
    return f' <a href="/loops/{quote(last.loop_id, safe="")}">running: {escape(last.step)}</a>'


def _links(overview: Overview, facts: ProjectFacts) -> list[Link]:
    links, of_loops = [], set()
    for version_name, loop_id in facts.loops_of_versions.items():
        pages = facts.loop_pages.get(loop_id, [])
        of_loops.update(pages)
        links += [
            Link(f"{version_name}: {PAGE_NAMES[page]}", loop_path_of(facts.name, loop_id, page)) for page in pages
        ]
    newest = [page for page in facts.pages if page not in of_loops]
    links += [Link(PAGE_NAMES[page], path_of(facts.name, page)) for page in newest]
    where = {name: service.url.rstrip("/") for name, service in overview.services.items() if service.url}
    return [*links, *overview_page.tool_links(facts, where)]


def _refused(request: Request, error: Exception) -> Response:
    """Return an error as text, without internals of the program."""
    assert isinstance(error, HTTPException)
    back = request.url.path if error.status_code == 409 else "/"
    return _error_response(request, error.status_code, "That cannot be done", error.detail, back, error.headers)


def _without_store(request: Request, error: Exception) -> Response:
    """Return why a store cannot be used, such as a state database that a newer Loopline has migrated, and the cure."""
    return _error_response(request, 503, "A store cannot be used", str(error))


def _failed(request: Request, _: Exception) -> Response:
    """Return a general error; the server writes the traceback into the service's log.

    Starlette answers with it outside all middleware, so it adds the guard's headers itself.
    """
    text = "The log of this page's service says what."
    return _error_response(request, 500, "Something went wrong", text, headers=HEADERS)


def _error_response(
    request: Request, status: int, title: str, text: str, back: str = "/", headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error: JSON for programs, which call the paths of `API`, else a page that leads back."""
    if request.url.path.startswith(API):
        return JSONResponse({"error": text}, status, headers)
    return HTMLResponse(
        overview_page.render_message(title, [text], [overview_page.Link("Go on", back)]), status, headers
    )


@contextlib.asynccontextmanager
async def _measuring(app: Starlette) -> AsyncIterator[None]:
    """Gather the first page, and measure the stores while the application runs, in a background thread."""
    over = threading.Event()
    threading.Thread(target=_measure, args=(app.state.workspace, over), name="loopline-sizes", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        app.state.playground.close()


def _measure(workspace: Workspace, over: threading.Event) -> None:
    with contextlib.suppress(StoreError):  # of specs, templates and statements this process then has what it read
        overview_page.render_index(gathering.overview(workspace, plans=False))
    while True:
        began = time.monotonic()
        with contextlib.suppress(StoreError):  # the workspace's light shows a full disk
            measure(workspace)
        if over.wait(max(MEASURE_EVERY_S, 20 * (time.monotonic() - began))):
            return
