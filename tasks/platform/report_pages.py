"""The report pages of the steps: by loop and name, and the newest by name alone. A request can show no other files."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from tasks.host.object_store import object_store
from tasks.host.workspace import Workspace
from tasks.loop.loop_pages import FOLDER, PAGE_OF_STEP, page_of
from tasks.platform.services import services_of, usual_address
from tasks.state import shared_files

PAGES = {
    "card": "card.html",
    "validation-raw": "reports/validation-raw.html",
    "validation-prepared": "reports/validation-prepared.html",
    "monitor": "monitoring/monitoring.html",
    "backtest": "backtest/backtest.html",
}
PAGE_NAMES = {
    "card": "model card with the verdict",
    "validation-raw": "validation of the raw data",
    "validation-prepared": "validation of the prepared data",
    "monitor": "monitoring report",
    "backtest": "backtest of policies",
}
"""What each page is, in words."""

LOOP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def known_pages(state: Path, shared: Collection[str] = ()) -> dict[str, Path]:
    """Return the existing pages of a project, by name.

    Args:
        state: The project's folder under `.loopline/projects/`.
        shared: The pages that exist even if their files are not here: another machine has published them.
    """
    paths = {name: state / inside for name, inside in PAGES.items()}
    return {name: path for name, path in paths.items() if name in shared or path.is_file()}


def find_page(state: Path, name: str) -> Path | None:
    """Return the file of a project's page, as the last machine has written it; None if there is no such page."""
    inside = PAGES.get(name)
    if inside is None:
        return None
    shared_files.refresh(state, state / inside)
    return known_pages(state).get(name)


def loop_pages(state: Path, loop_id: str, *, is_shared: bool = False) -> list[str]:
    """Return the names of a loop's pages, in a fixed order.

    Args:
        state: The project's folder under `.loopline/projects/`.
        loop_id: The loop.
        is_shared: Whether the loop came to its end, so that the object store has its pages if there is one.
    """
    if not LOOP_ID.fullmatch(loop_id):
        return []
    if is_shared and object_store():
        return [*PAGE_OF_STEP.values()]
    return [name for name in PAGE_OF_STEP.values() if page_of(state, loop_id, name).is_file()]


def find_loop_page(state: Path, loop_id: str, name: str) -> Path | None:
    """Return the file of a loop's page, fetched from another machine if need be; None if there is no such page."""
    if not LOOP_ID.fullmatch(loop_id) or name not in PAGE_OF_STEP.values():
        return None
    path = page_of(state, loop_id, name)
    if not path.is_file():
        shared_files.refresh(state, path)
    return path if path.is_file() else None


def as_link(text: str, project: str, page: str) -> str:
    """Replace the `file://` links to a page of a project, of any machine, by its name on the overview server.

    Pages link to each other as files, which a browser blocks on a server's page.
    """
    inside = rf"(?:{re.escape(PAGES[page])}|{FOLDER}/(?P<loop>{LOOP_ID.pattern})/{page}\.html)"
    place = rf"file:///[^\"'<>\s]*{re.escape(f'/projects/{quote(project)}/')}{inside}"
    return re.sub(place, lambda match: loop_path_of(project, match["loop"], page) if match["loop"] else page, text)


def path_of(project: str, page: str) -> str:
    """Return the path on the overview server of a project's page; `project` is the name in the spec."""
    return f"/projects/{quote(project, safe='')}/pages/{page}"


def loop_path_of(project: str, loop_id: str, page: str) -> str:
    """Return the path on the overview server of a loop's page, which no later loop changes."""
    return f"/projects/{quote(project, safe='')}/loops/{quote(loop_id, safe='')}/{page}"


def address_of(workspace: Workspace, project: str, path: Path) -> str:
    """Return a page's URL on the overview server; while it is down, where `loopline up` will serve it.

    Browsers block the `file://` links of servers, and Prefect keeps a link for good.

    Args:
        workspace: The workspace.
        project: The name in the project's spec.
        path: The page's file.
    """
    if path.parent.parent.name == FOLDER:
        inside: str | None = loop_path_of(project, path.parent.name, path.stem)
    else:
        name = next((name for name, place in PAGES.items() if Path(place).name == path.name), None)
        inside = path_of(project, name) if name else None
    if inside is None:
        return path.resolve().as_uri()
    url = next((state.url for state in services_of(workspace) if state.name == "overview"), None)
    return f"{url or usual_address(workspace, 'overview')}{inside}"
