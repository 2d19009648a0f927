"""The page of a loop, and the events by which an open page follows a loop that runs, here or on another machine.

An event is the page's changed part as HTML; its id is the number of the last line in the outbox that it shows. A
browser that lost the connection sends that number, and gets what came since. A page that nobody has open costs nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
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
RENEW_S = 5.0
"""How often it is sent without one, because times pass."""
MOST_LINES = 2000
"""How many lines are in memory at once: of a loop of a day there are 100,000, and twenty pages may be open."""
SCRIPTS = Path(loop_page.__file__).parent / "scripts"


class LoopView:
    """A loop as a page shows it, kept up to date by the lines that came since the last look.

    Args:
        workspace: The workspace.
        stored: The loop as it was found.
    """

    def __init__(self, workspace: Workspace, stored: StoredLoop) -> None:
        self._workspace = workspace
        self._project, self._loop_id = stored.project, stored.record.loop_id
        self._state = workspace.state / "projects" / stored.project
        self._outbox = Outbox(self._state, self._loop_id)
        self._mark: tuple[int, str] | None = None
        self._sent_at = 0.0
        self._prefect = PrefectServer(workspace).url()
        self.progress = LoopProgress()
        self.is_over = False

    def whole(self, logout: str) -> str:
        """Return the whole page."""
        self._catch_up()
        return loop_page.render_loop(self._facts(), self.progress, time.time(), logout)

    def changed(self, last_number: int) -> str | None:
        """Return the part that changes; None if there is nothing new since the last call, or since line `last_number`.

        Cost: one query if nothing has changed.
        """
        mark, now = change_mark(self._workspace.state, self._project, self._loop_id), time.time()
        is_shown = mark == (self._mark or (last_number, "running"))
        if is_shown and now - self._sent_at < RENEW_S and self._mark:
            return None
        self._catch_up()
        facts = self._facts()
        is_first, self._mark, self.is_over = self._mark is None, mark, not facts.can_stop
        if is_shown and is_first and not self.is_over:
            return None
        self._sent_at = now
        return loop_page.render_live(facts, self.progress, now)

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
        if self._prefect and flow_run:
            page = f"{self._prefect.removesuffix('/api')}/runs/flow-run/{quote(flow_run, safe='')}"
            links.append(Link("its run in Prefect", page))
        return links


def page(request: Request) -> Response:
    """Return the page of a loop."""
    return HTMLResponse(_view(request).whole(logout_token(request)))


async def events(request: Request) -> Response:
    """Return the changes of a loop as server-sent events, until it is over or the page is closed."""
    view = await run_in_threadpool(_view, request)
    after = request.headers.get("last-event-id") or request.query_params.get("after", "")
    content = _changes(request, view, int(after) if re.fullmatch("[0-9]{1,18}", after) else 0)
    return StreamingResponse(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _changes(request: Request, view: LoopView, last_number: int) -> AsyncIterator[str]:
    yield f"retry: {round(1000 * LOOK_S)}\n\n"
    while not request.app.state.is_ending():
        html = await run_in_threadpool(view.changed, last_number)
        if html is not None:
            lines = "".join(f"data: {line}\n" for line in html.splitlines())
            yield f"id: {view.progress.number}\nevent: loop\n{lines}\n"
        if view.is_over:
            yield "event: over\ndata:\n\n"
            return
        await asyncio.sleep(LOOK_S)


def _view(request: Request) -> LoopView:
    workspace: Workspace = request.app.state.workspace
    stored = find_loop(workspace.state, request.path_params["loop"])
    if stored is None:
        raise HTTPException(404, "There is no loop of that id.")
    return LoopView(workspace, stored)


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
