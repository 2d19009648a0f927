"""Only pages of the list are ever found."""

from pathlib import Path

import pytest

from models.files import write_json
from tasks.host.workspace import Workspace
from tasks.loop.loop_pages import keep_page, page_of
from tasks.platform import report_pages
from tasks.platform.report_pages import address_of, as_link, find_loop_page, find_page, known_pages, loop_pages
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
    assert address_of(workspace, "a b", card) == "http://127.0.0.1:4300/projects/a%20b/pages/card", "as `up` serves it"
    write_json(workspace.platform / "ports.json", {"ports": {"overview": 4399}})
    assert address_of(workspace, "a b", card) == "http://127.0.0.1:4399/projects/a%20b/pages/card", "where it was last"
    up = [ServiceState("overview", "running", "http://127.0.0.1:4300")]
    monkeypatch.setattr(report_pages, "services_of", lambda _: up)
    assert address_of(workspace, "a b", card) == "http://127.0.0.1:4300/projects/a%20b/pages/card"
    raw = card.parent / "reports" / "validation-raw.html"
    assert address_of(workspace, "a b", raw).endswith("/projects/a%20b/pages/validation-raw")
    assert address_of(workspace, "a b", card.parent / "other.html").startswith("file://")
    of_loop = page_of(card.parent, "a-1", "card")
    assert address_of(workspace, "a b", of_loop) == "http://127.0.0.1:4300/projects/a%20b/loops/a-1/card"


def test_a_page_of_another_machine_is_read_as_it_was_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOPLINE_ROOT", f"file://{tmp_path}/store")
    mine, theirs = tmp_path / "a" / "tiny", tmp_path / "b" / "tiny"
    for folder, text in ((mine, "old"), (theirs, "new")):
        folder.mkdir(parents=True)
        (folder / "card.html").write_text(text)
        shared_files.publish(folder, 1, folder / "card.html")
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
    of_loop = '<a href="file:///ada/.loopline/projects/a%20b/pages/a-1/validation-raw.html">raw</a>'
    assert as_link(of_loop, "a b", "validation-raw") == '<a href="/projects/a%20b/loops/a-1/validation-raw">raw</a>'


@pytest.mark.parametrize("loop_id", ["..", "../tiny", "a/b", "", "%2e%2e", ".hidden"])
def test_only_the_pages_of_a_loop_are_found(tmp_path: Path, loop_id: str):
    keep_page(tmp_path, "tiny-1", "card", _written(tmp_path / "work" / "card.html", "one"), 1)
    (tmp_path / "card.html").write_text("newest")
    assert find_loop_page(tmp_path, "tiny-1", "card") == page_of(tmp_path, "tiny-1", "card")
    assert find_loop_page(tmp_path, "tiny-1", "monitor") is None
    assert find_loop_page(tmp_path, loop_id, "card") is None
    assert (loop_pages(tmp_path, "tiny-1"), loop_pages(tmp_path, loop_id)) == (["card"], [])


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
