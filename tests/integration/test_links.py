"""Every page of a workspace with a project in each state: its links lead somewhere, and it can be read anywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from infra.documentation.page_pictures import SHOWN
from tasks.host.http_guard import token_of
from tasks.host.workspace import Workspace
from tests.chromium import VIEWS, Inspector, chromium, use_view
from tests.integration.test_page import serving
from tests.page_states import CHAMPIONS, DATA, LOOPS, shown_data, workspace_of_states
from tests.unit.models.validation.test_profiling import columns, profiled

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LINKS = """[...document.querySelectorAll('a:not([download])')]
  .map(a => [a.getAttribute('href') ?? '', a.href, a.innerText])"""
FILES = "[...document.querySelectorAll('a[download]')].map(a => a.href)"
PARTS = "[...document.querySelectorAll('[id]')].map(part => part.id)"
"""All at once: each question to the browser takes CPU, and the pages have hundreds of links."""
AGAINST = {"/versions/2": "?against=1", f"/data/{DATA}": "?against=" + "0" * 32 + ".dir"}
"""Pages of two side by side are reached by a form, not by a link."""
STATES = ("never", *LOOPS, "asked", "champion", "alarmed")
AWAY = "http://127.0.0.1:1"
"""The address of a tracking store that is away."""
WITH_STORE = ("/", "/projects/champion", "/projects/champion/versions/2", "/projects/champion/releases")
"""Pages that show what a tracking store has."""


@pytest.fixture(scope="module")
def place(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    before = dict(os.environ)
    yield workspace_of_states(tmp_path_factory.mktemp("links"), empty_store)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def data(place: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Versions of the data of every kind: a table twice, pictures, a series and texts."""
    random = np.random.default_rng(0)
    hours = np.arange("2026-01-01", "2026-02-01", np.timedelta64(3600, "s"), dtype="datetime64[s]")
    pixels = [bytes(random.integers(0, 255, 64, dtype=np.uint8)) for _ in range(60)]
    pictures = {"image": pa.array(pixels, pa.binary()), "y": ["a", "b"] * 30}
    series = {"at": hours, "y": np.sin(np.arange(len(hours)) / 5), "x": np.arange(len(hours)) % 7}
    lines = {"text": [f"line {number} of a longer text that goes on and on" for number in range(200)]}
    wide = {**columns(), **{f"a long name of column {number}": random.normal(size=400) for number in range(30)}}
    image = {"kind": "image", "image": {"column": "image", "height": 8, "width": 8}}
    by_time = {"kind": "series", "window": {"length": 8}, "split": {"by": "time", "column": "at"}}
    tables: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
        "0" * 32 + ".dir": ("champion", columns(), "y", {"id": "code"}),
        DATA: ("champion", wide, "y", {"id": "code"}),
        "1" * 32 + ".dir": ("refused", pictures, "y", image),
        "2" * 32 + ".dir": ("alarmed", series, "y", by_time),
        "3" * 32 + ".dir": ("asked", lines, "text", {"kind": "text", "text": {"length": 16}}),
    }
    for data_hash, (project, rows, target, more) in tables.items():
        profile = profiled(tmp_path_factory.mktemp("data"), rows, target, **more)
        shown_data(place, project, data_hash, profile)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, or none."""
    with chromium() as running:
        yield running


def bearer(place: Workspace) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(place)}"}


def picture_name(path: str) -> str:
    """The name of the file of a page's picture, by the path of its address."""
    return re.sub(r"[^a-z0-9-]+", "_", path.removeprefix("/") or "index")


def walk(page: Page, base: str, visit: Callable[[Page, str], list[str]]) -> tuple[dict[str, int], list[str]]:
    """Follow every link of every page; return the statuses by address, and what is wrong."""
    waiting, seen = [f"{base}/"], dict[str, int]()
    faults = list[str]()
    while waiting:
        address = waiting.pop()
        answer = page.goto(address)
        assert answer is not None
        seen[address] = answer.status
        parts = page.evaluate(PARTS)
        links = page.evaluate(LINKS)
        links += [["", address + more, ""] for end, more in AGAINST.items() if address.endswith(end)]
        for file in {*page.evaluate(FILES)} - {*seen}:
            seen[file] = page.request.get(file).status
        for written, whole, text in links:
            where, _, part = whole.partition("#")
            if not where.startswith(base) or written == "#":
                faults.append(f"{address}: {text!r} leads to {written!r}")
            elif part and where == address and part not in parts:
                faults.append(f"{address}: there is no part {part!r}")
            elif where not in seen and where not in waiting:
                waiting.append(where)
        faults += [f"{address.removeprefix(base)}: {fault}" for fault in visit(page, address)]
    return seen, faults


@pytest.mark.wide
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("data")
def test_every_link_leads_somewhere_and_every_page_can_be_read(place: Workspace, browser: Browser) -> None:
    with serving(place) as port:
        inspector = Inspector(browser, bearer(place))
        base = f"http://127.0.0.1:{port}"
        page = browser.new_page(extra_http_headers=bearer(place))
        errors: list[str] = []
        page.on("console", lambda said: errors.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        seen, faults = walk(page, base, lambda page, _: inspector.faults(page))
        assert faults == []
        refused = {address: status for address, status in seen.items() if status != 200}
        assert {status for address, status in refused.items() if not address.endswith("/try")} == set()
        assert {*refused.values()} <= {422}, "nothing was trained, so there is no model to try; the page says so"
        assert [error for error in errors if "/try: " not in error] == []
        paths = {address.removeprefix(base) for address in seen}
        assert {f"/projects/{name}" for name in ("never", "broken", *LOOPS, *CHAMPIONS)} <= paths
        kinds = ("card", "validation-raw", "validation-prepared", "monitor", "backtest")
        assert {f"/projects/alarmed/pages/{kind}" for kind in kinds} <= paths
        assert {f"/loops/{name}-1" for name in (*LOOPS, *CHAMPIONS)} <= paths
        assert {f"/data/{DATA}", "/projects/champion/versions/2?against=1"} <= paths
        assert {*SHOWN.values()} <= paths, "the documentation has pictures of them"
        assert {"/new", "/projects/champion/spec", "/projects/champion/versions/2/try"} <= paths


@pytest.mark.wide
def test_without_its_store_every_page_can_be_read(
    place: Workspace, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    with serving(place) as port:
        inspector = Inspector(browser, bearer(place))
        page = browser.new_page(extra_http_headers=bearer(place))
        for path in WITH_STORE:
            answer = page.goto(f"http://127.0.0.1:{port}{path}")
            assert answer is not None
            assert (answer.status, inspector.faults(page)) == (200, [])


@pytest.mark.wide
def test_a_report_is_reached_by_a_click_and_has_a_way_back(place: Workspace, browser: Browser) -> None:
    with serving(place) as port:
        page = browser.new_page(extra_http_headers=bearer(place))
        use_view(page, "phone")
        page.goto(f"http://127.0.0.1:{port}/projects/alarmed")
        page.get_by_role("link", name="model card with the verdict").click()
        page.wait_for_url("**/projects/alarmed/pages/card")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("link", name="validation-raw").click()
        page.wait_for_url("**/projects/alarmed/pages/validation-raw")
        page.get_by_role("link", name="alarmed", exact=True).click()
        page.wait_for_url("**/projects/alarmed")


@pytest.mark.wide
def test_the_card_is_in_tabs_that_have_addresses(place: Workspace, browser: Browser) -> None:
    shown = "[...document.querySelectorAll('.tab')].filter(part => part.checkVisibility()).map(part => part.id)"
    with serving(place) as port:
        page = browser.new_page(extra_http_headers=bearer(place), java_script_enabled=False)
        page.goto(f"http://127.0.0.1:{port}/projects/champion/versions/2")
        page.get_by_role("navigation", name="parts of this version").get_by_role("link", name="Training").press("Enter")
        page.wait_for_url("**/projects/champion/loops/champion-1/card#training")
        assert page.evaluate(shown) == ["training"]
        tabs = page.get_by_role("navigation", name="parts of this page")
        tabs.get_by_role("link", name="Performance").press("Enter")
        assert page.evaluate(shown) == ["performance"]
        tabs.get_by_role("link", name="All").press("Enter")
        assert len(page.evaluate(shown)) == 5
        page.goto(page.url.partition("#")[0])
        assert page.evaluate(shown) == ["verdict"]
        page.get_by_role("link", name="its loop").click()
        page.wait_for_url("**/loops/champion-1")


def photograph(page: Page, folder: Path, name: str) -> None:
    """Take a picture of the whole page in each view."""
    for view in VIEWS:
        use_view(page, view)
        page.screenshot(path=folder / view / f"{name}.png", full_page=True)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("data")
def test_pictures_of_every_page_in_every_view(
    place: Workspace, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people to look at: PICTURES names the folder, else it is pytest's."""
    folder, names = Path(os.environ.get("PICTURES", tmp_path)), list[str]()
    page = browser.new_page(extra_http_headers=bearer(place))

    def visit(page: Page, address: str) -> list[str]:
        names.append(picture_name(address.partition("//")[2].partition("/")[2]))
        photograph(page, folder, names[-1])
        return []

    with serving(place) as port:
        walk(page, f"http://127.0.0.1:{port}", visit)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    with serving(place) as port:
        for path in WITH_STORE:
            page.goto(f"http://127.0.0.1:{port}{path}")
            names.append(f"away_{picture_name(path)}")
            photograph(page, folder, names[-1])
    assert len(names) > 100
    assert {path.stem for path in folder.rglob("*.png")} == {*names}


@pytest.mark.soak
@pytest.mark.usefixtures("data")
def test_pictures_of_the_documentation(place: Workspace, browser: Browser, tmp_path: Path) -> None:
    """`make pictures` takes them: PICTURES names the folder, else it is pytest's."""
    folder = Path(os.environ.get("PICTURES", tmp_path))
    page = browser.new_page(extra_http_headers=bearer(place))
    use_view(page, "desk")
    with serving(place) as port:
        for name, path in SHOWN.items():
            page.goto(f"http://127.0.0.1:{port}{path}")
            page.screenshot(path=folder / f"{name}.png")
    assert {path.stem for path in folder.iterdir()} >= {*SHOWN}
