"""The page of a loop, and the events by which an open page follows a loop that runs, here or on another machine.

An event is the page's changed part as HTML; its id is the number of the last line in the outbox that it shows. A
browser that lost the connection sends that number, and gets what came since. A page that nobody has open costs nothing,
and all that have the same page open share one view of it: a change is read and rendered once.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from models.pipeline.steps import BY_NAME
from models.report import loop_page
from models.report.facts import EARLY, LoopState
from models.report.loop_page import LoopFacts
from models.report.loop_progress import LoopProgress
from models.report.overview_page import Link
from tasks.dashboard.session import logout_token
from tasks.host.object_store import object_store
from tasks.host.workspace import Workspace
from tasks.loop.history import StoredLoop, change_mark, find_loop, is_running, last_loop
from tasks.platform.report_pages import PAGE_NAMES, loop_pages, loop_path_of
from tasks.prefect.prefect_server import PrefectServer
from tasks.state.outbox import Outbox
from tasks.state.step_records import latest_records

LOOK_S = 1.0
"""How often an open page looks for changes."""
SLOW_LOOK_S = 3.0
"""The same of an open page of a project or a release, whose every look gathers its facts."""
RENEW_S = 5.0
"""How often it is sent without one, because times pass."""
FRESH_S = 0.5
"""So long one look of a view serves all its open pages."""
MOST_LINES = 2000
"""How many lines are in memory at once: of a loop of a day there are 100,000."""
MOST_VIEWS = 8
"""The views that are kept for the next request of their loop; an open page keeps its own in any case."""
SCRIPTS = Path(loop_page.__file__).parent / "scripts"
_views_lock = threading.Lock()


class LivePart(NamedTuple):
    """The part of a page that changes: the loop's mark, the last line that it shows, and when it was rendered."""

    mark: tuple[int, str]
    number: int
    html: str
    is_over: bool
    rendered_at: float


class LoopView:
    """A loop as its page shows it, kept up to date by the lines that came since the last look; for several threads.

    Args:
        workspace: The workspace.
        stored: The loop as it was found.
    """

    def __init__(self, workspace: Workspace, stored: StoredLoop) -> None:
        self._workspace = workspace
        self._project, self._loop_id = stored.project, stored.record.loop_id
        self._state = workspace.state / "projects" / stored.project
        self._outbox = Outbox(self._state, self._loop_id)
        self._lock = threading.Lock()
        self._part: LivePart | None = None
        self._looked_at = 0.0
        self.progress = LoopProgress()

    def whole(self, logout: str) -> str:
        """Return the whole page."""
        with self._lock:
            self._catch_up()
            return loop_page.render_loop(self._facts(), self.progress, time.time(), logout)

    def part(self) -> LivePart:
        """Return the part that changes: the same object as before unless the loop has changed, or times have passed.

        Cost: one query if nothing has changed; none within half a second of the last call.
        """
        with self._lock:
            now = time.time()
            if self._part is None or now - self._looked_at >= FRESH_S:
                self._looked_at = now
                mark = change_mark(self._workspace.state, self._project, self._loop_id)
                if self._part is None or mark != self._part.mark or now - self._part.rendered_at >= RENEW_S:
                    self._part = self._rendered(mark, now)
            return self._part

    def _rendered(self, mark: tuple[int, str], now: float) -> LivePart:
        self._catch_up()
        facts = self._facts()
        html = loop_page.render_live(facts, self.progress, now)
        return LivePart(mark, self.progress.number, html, not facts.can_stop, now)

    def _catch_up(self) -> None:
        while lines := self._outbox.lines(self.progress.number, MOST_LINES):
            self.progress.add(lines)

    def _facts(self) -> LoopFacts:
        stored = find_loop(self._workspace.state, self._loop_id)
        if stored is None:
            raise HTTPException(404, "There is no loop of that id.")
        record, past = stored.record, stored.past
        runs = is_running(self._state, record)
        state: LoopState = "killed" if record.state == "running" and not runs else record.state  # type: ignore[assignment]
        usual = latest_records(self._workspace.state, [self._project], [*BY_NAME])[self._project]
        last = last_loop(self._state)
        ended = past if past and not runs else None
        return LoopFacts(
            self._loop_id,
            self._project,
            state,
            record.began,
            trigger=record.trigger,
            host=str(record.process.get("host", "")),
            step=record.step,
            ended=ended.ended if ended else None,
            outcome=ended.outcome if ended else "",
            reason=ended.reason if ended else "",
            device_seconds=ended.device_seconds if ended else None,
            version=self.progress.tags.get("loopline.version", ""),
            links=self._links(record.flow_run, is_over=state == "finished"),
            usual={name: step.seconds for name, step in usual.items()},
            can_stop=runs,
            can_retry=state in EARLY and last is not None and last.loop_id == self._loop_id,
        )

    def _links(self, flow_run: str, *, is_over: bool) -> list[Link]:
        names = loop_pages(self._state, self._loop_id, is_shared=is_over and bool(object_store()))
        links = [Link(PAGE_NAMES[name], loop_path_of(self._project, self._loop_id, name)) for name in names]
        prefect = PrefectServer(self._workspace).url() if flow_run else ""
        if prefect:
            page = f"{prefect.removesuffix('/api')}/runs/flow-run/{quote(flow_run, safe='')}"
            links.append(Link("its run in Prefect", page))
        return links


def page(request: Request) -> Response:
    """Return the page of a loop."""
    return HTMLResponse(_view(request).whole(logout_token(request)))


async def events(request: Request) -> Response:
    """Return the changes of a loop as server-sent events, until it is over or the page is closed."""
    view = await run_in_threadpool(_view, request)
    after = request.headers.get("last-event-id") or request.query_params.get("after", "")
    return stream(_changes(request, view, int(after) if re.fullmatch("[0-9]{1,18}", after) else 0))


async def changes(request: Request, newest_part: Callable[[], tuple[str, bool]]) -> AsyncIterator[str]:
    """Yield the part of a page that changes, as events, until the page is closed.

    Args:
        request: Of the events.
        newest_part: Returns the part as HTML, and whether it is the last.
    """
    sent = ""
    while not request.app.state.is_ending():
        html, is_last = await run_in_threadpool(newest_part)
        if html != sent:
            yield "event: loop\n" + "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
            sent = html
        if is_last:
            yield "event: over\ndata:\n\n"
            return
        await asyncio.sleep(SLOW_LOOK_S)


def stream(content: AsyncIterator[str]) -> Response:
    """Return events as an answer that no proxy holds back."""
    return StreamingResponse(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _changes(request: Request, view: LoopView, last_number: int) -> AsyncIterator[str]:
    yield f"retry: {round(1000 * LOOK_S)}\n\n"
    last: LivePart | None = None
    while not request.app.state.is_ending():
        part = await run_in_threadpool(view.part)
        is_loaded = last is None and part.number == last_number and not part.is_over
        if part is not last and not is_loaded:
            lines = "".join(f"data: {line}\n" for line in part.html.splitlines())
            yield f"id: {part.number}\nevent: loop\n{lines}\n"
        if part.is_over:
            yield "event: over\ndata:\n\n"
            return
        last = part
        await asyncio.sleep(LOOK_S)


def _view(request: Request) -> LoopView:
    workspace: Workspace = request.app.state.workspace
    views: dict[str, LoopView] = request.app.state.loop_views
    stored = find_loop(workspace.state, request.path_params["loop"])
    if stored is None:
        raise HTTPException(404, "There is no loop of that id.")
    loop_id = stored.record.loop_id
    with _views_lock:
        view = views.pop(loop_id) if loop_id in views else LoopView(workspace, stored)
        views[loop_id] = view  # the newest stands last
        while len(views) > MOST_VIEWS:
            del views[next(iter(views))]
    return view


def script(request: Request) -> Response:
    """Return a script of the pages, from a fixed list."""
    name = request.path_params["name"]
    if name not in ("idiomorph.min.js", "live.js"):
        raise HTTPException(404, "There is no such script.")
    return FileResponse(SCRIPTS / name, media_type="text/javascript", headers={"Cache-Control": "max-age=60"})


ROUTES = [
    Route("/loops/{loop}", page),
    Route("/loops/{loop}/events", events),
    Route("/scripts/{name}", script),
]
