"""Only pages of the list are ever found."""

from pathlib import Path

import pytest

from tasks.host.workspace import Workspace
from tasks.platform import report_pages
from tasks.platform.report_pages import address_of, as_link, find_page, known_pages
from tasks.platform.services import ServiceState
from tasks.state import shared_files


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


def test_a_page_of_another_machine_is_read_as_it_was_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    mine, theirs = tmp_path / "a" / "tiny", tmp_path / "b" / "tiny"
    for folder, text in ((mine, "old"), (theirs, "new")):
        folder.mkdir(parents=True)
        (folder / "card.html").write_text(text)
        shared_files.publish(folder, folder / "card.html")
    assert find_page(mine, "secret") is None
    assert find_page(mine, "validation-raw") is None
    page = find_page(mine, "card")
    assert page is not None
    assert page.read_text() == "new"
    assert known_pages(mine, {"validation-raw"}).keys() == {"card", "validation-raw"}
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store/layout/none")
    assert find_page(mine, "card") == mine / "card.html", "what is here stays if the store is away"


def test_links_to_files_of_any_machine_become_names_of_pages():
    text = '<a href="file:///ada/.loopline/projects/a%20b/reports/validation-raw.html">raw</a> file:///etc/projects/x'
    assert as_link(text, "a b", "validation-raw") == '<a href="validation-raw">raw</a> file:///etc/projects/x'
    assert as_link(text, "other", "validation-raw") == text
