"""The pages that the steps leave behind, by name: the only files that may be shown, whatever a request asks for."""

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
    """The pages of a project that are there, by name."""
    return {name: path for name, inside in PAGES.items() if (path := state / inside).is_file()}


def path_of(project: str, page: str) -> str:
    """The path of a project's page on the overview page, by the name in its spec."""
    return f"/projects/{quote(project, safe='')}/pages/{page}"


def address_of(workspace: Workspace, project: str, path: Path) -> str:
    """The URL of a page: on the overview page while that is up, since browsers follow no `file://` link of a server.

    Args:
        workspace: Where.
        project: The name in the project's spec.
        path: The page's file.
    """
    name = next((name for name, inside in PAGES.items() if Path(inside).name == path.name), None)
    url = next((state.url for state in services_of(workspace) if state.name == "overview"), None)
    return f"{url}{path_of(project, name)}" if name and url else path.resolve().as_uri()
