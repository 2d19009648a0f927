"""A browser without scripts makes a project of a CSV and changes its spec; a real child process reads the data."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.host import stores
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tests.chromium import Inspector, chromium
from tests.integration.test_links import bearer
from tests.integration.test_page import serving
from tests.unit.tasks.dashboard.test_new_project import ROWS


@pytest.fixture
def place(tmp_path: Path, module_environment: None) -> Iterator[Workspace]:
    """An empty workspace in a git repository."""
    before = dict(os.environ)
    workspace = Workspace(tmp_path / "team")
    (workspace.root / "projects").mkdir(parents=True)
    subprocess.run(["git", "-C", str(workspace.root), "init", "--quiet"], check=True)
    workspace.make()
    stores.configure(workspace)
    yield workspace
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.wide
def test_a_browser_alone_makes_a_project_and_changes_its_spec(place: Workspace, tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text(ROWS)
    with serving(place) as port, chromium() as browser:
        page = browser.new_context(java_script_enabled=False).new_page()
        page.set_default_timeout(120_000)
        inspector = Inspector(browser, bearer(place))
        page.goto(f"http://127.0.0.1:{port}/")
        page.fill("input[name=secret]", token_path(place).read_text().strip())
        page.click("main button")
        page.get_by_role("link", name="New project").click()
        assert inspector.faults(page) == []
        page.set_input_files("#file", tmp_path / "customers.csv")
        page.click("text=Look at it")
        assert "category, 2 levels" in page.inner_text("main")
        assert inspector.faults(page) == []
        page.click("text=Create the project")
        assert "Commit " in page.inner_text("main")
        page.get_by_role("link", name="Its page").click()
        page.get_by_role("link", name="its spec").click()
        assert inspector.faults(page) == []
        page.fill("[name='data.split.test']", "much")
        page.click("text=Show the difference")
        assert page.inner_text("#data-split-test-wrong") == 'got "much", expected number'
        page.fill("[name='data.split.test']", "0.2")
        page.click("text=Show the difference")
        assert "test: 0.2" in page.inner_text("ins")
        page.click("text=Write it")
        assert "Commit " in page.inner_text("main")
    assert place.project("customers").spec().data.split.test == 0.2
