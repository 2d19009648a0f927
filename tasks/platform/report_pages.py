"""The report pages of the steps, by name: the only files that a request can show."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tasks.host.workspace import Workspace
from tasks.platform.services import services_of

PAGES = {
    "card": "card.html",
    "validation-raw": "reports/validation-raw.html",
    "validation-prepared": "reports/validation-prepared.html",
    "monitor": "monitoring/monitoring.html",
    "backtest": "backtest/backtest.html",
}


def known_pages(state: Path) -> dict[str, Path]:
    """Return the existing pages of a project, by name."""
    return {name: path for name, inside in PAGES.items() if (path := state / inside).is_file()}


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
