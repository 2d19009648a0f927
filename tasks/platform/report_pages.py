"""The report pages of the steps, by name: the only files that a request can show."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from tasks.host.workspace import Workspace
from tasks.platform.services import services_of
from tasks.state import shared_files

PAGES = {
    "card": "card.html",
    "validation-raw": "reports/validation-raw.html",
    "validation-prepared": "reports/validation-prepared.html",
    "monitor": "monitoring/monitoring.html",
    "backtest": "backtest/backtest.html",
}


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


def as_link(text: str, project: str, page: str) -> str:
    """Replace the `file://` links to a page of a project, of any machine, by its name on the overview server.

    Pages link to each other as files, which a browser blocks on a server's page.
    """
    place = re.escape(f"/projects/{quote(project)}/{PAGES[page]}")
    return re.sub(rf"file:///[^\"'<>\s]*{place}", page, text)


def path_of(project: str, page: str) -> str:
    """Return the path on the overview server of a project's page; `project` is the name in the spec."""
    return f"/projects/{quote(project, safe='')}/pages/{page}"


def address_of(workspace: Workspace, project: str, path: Path) -> str:
    """Return a page's URL: on the overview server while it is up, because browsers block `file://` links of servers.

    Args:
        workspace: The workspace.
        project: The name in the project's spec.
        path: The page's file.
    """
    name = next((name for name, inside in PAGES.items() if Path(inside).name == path.name), None)
    url = next((state.url for state in services_of(workspace) if state.name == "overview"), None)
    return f"{url}{path_of(project, name)}" if name and url else path.resolve().as_uri()
