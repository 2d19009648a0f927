"""From an empty workspace, `loopline up` and a browser alone: a file becomes a model that answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tasks.host.http_guard import token_path
from tests.chromium import chromium
from tests.e2e.conftest import MakeHome
from tests.e2e.test_platform import Platform

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.e2e, pytest.mark.wide, pytest.mark.timeout(600)]

LONGEST_MS = 400_000
NUM_ROWS = 600


@pytest.fixture(scope="module")
def home(make_home: MakeHome) -> Iterator[Platform]:
    """An empty workspace."""
    platform = Platform(make_home("browser").home)
    yield platform
    platform("down", "--force")


def customers() -> str:
    """Customers who leave more often the more they have called and the fewer months they have stayed."""
    draw = random.Random(5)
    lines = ["customer,months,plan,calls,left"]
    for number in range(NUM_ROWS):
        months, calls, plan = draw.randint(1, 60), draw.randint(0, 9), draw.choice(["basic", "plus", "family"])
        leaves = 0.7 * calls - 0.07 * months + draw.gauss(0, 0.8) > 1
        lines.append(f"c{number:04},{months},{plan},{calls},{'yes' if leaves else 'no'}")
    return "\n".join(lines)


def make_project(page: Page, table: Path) -> None:
    """Upload a table, look at its columns, create the project, and have its search make two trials."""
    page.get_by_role("link", name="New project").click()
    page.set_input_files("#file", table)
    page.get_by_role("button", name="Look at it", exact=True).click()
    assert "category, 3 levels" in page.inner_text("main")
    page.get_by_role("button", name="Create the project", exact=True).click()
    page.get_by_role("link", name="Its spec").click()
    page.fill("[name='search.trials']", "2")
    page.get_by_role("button", name="Show the difference", exact=True).click()
    assert "+  trials: 2" in page.inner_text("pre.file")
    page.get_by_role("button", name="Write it", exact=True).click()


def train(page: Page) -> list[str]:
    """Ask for a training and watch it to its end; return what the steps said, from one change to the next."""
    page.get_by_role("link", name="Train it").click()
    page.click("main button")
    page.get_by_role("link", name="Go on").click()
    page.click("a.banner")  # the project's page shows it without a load as soon as the loop runs
    page.wait_for_url("**/loops/*")
    page.evaluate("window.loadedOnce = true")
    shown = [page.inner_text("#live")]
    while "Version 1" not in shown[-1]:
        page.wait_for_function("text => document.getElementById('live').innerText !== text", arg=shown[-1])
        shown.append(page.inner_text("#live"))
    assert page.evaluate("window.loadedOnce"), "it has changed without a load"
    return [text.partition("Steps")[2].partition("Log")[0] for text in shown]


def test_a_browser_alone_goes_from_a_file_to_an_answer(home: Platform, tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text(customers())
    address = home("up", "--json").ok().json["services"]["overview"]["url"]
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(LONGEST_MS)
        page.goto(address)
        page.fill("input[name=secret]", token_path(home.workspace).read_text().strip())
        page.click("main button")
        make_project(page, tmp_path / "customers.csv")
        assert len({*train(page)}) > 3
        page.get_by_role("link", name="Version 1 and its verdict").click()
        assert "Promoted" in page.inner_text("section.light")
        page.get_by_role("link", name="Try it on a row").click()
        page.get_by_label("calls").fill("9")
        page.get_by_label("months").fill("1")
        page.get_by_role("button", name="Predict", exact=True).click()
        assert "yes" in page.inner_text("#answer + dl")
