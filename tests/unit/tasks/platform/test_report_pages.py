"""Only pages of the list are ever found."""

from pathlib import Path

import pytest

from tasks.host.workspace import Workspace
from tasks.platform import report_pages
from tasks.platform.report_pages import address_of, known_pages
from tasks.platform.services import ServiceState


def test_the_pages_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "validation-raw.html").write_text("raw")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "card.html").mkdir()
    assert known_pages(tmp_path) == {"validation-raw": tmp_path / "reports" / "validation-raw.html"}


def test_a_page_is_at_the_overview_page_while_it_is_up(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    card = workspace.state / "projects" / "a b" / "card.html"
    assert address_of(workspace, "a b", card) == card.resolve().as_uri()
    up = [ServiceState("overview", "running", "http://127.0.0.1:4300")]
    monkeypatch.setattr(report_pages, "services_of", lambda _: up)
    assert address_of(workspace, "a b", card) == "http://127.0.0.1:4300/projects/a%20b/pages/card"
    raw = card.parent / "reports" / "validation-raw.html"
    assert address_of(workspace, "a b", raw).endswith("/projects/a%20b/pages/validation-raw")
    assert address_of(workspace, "a b", card.parent / "other.html").startswith("file://")
