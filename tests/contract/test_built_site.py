"""The built site in a browser, opened from the disk: drawings are there, the search finds, nothing asks the network."""

from __future__ import annotations

import contextlib
import html
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
CHROMIUM = Path("/usr/bin/chromium")
LARGEST = 2_600_000
"""Bytes of the site in a wheel, which holds at most 5 MB (`tests/e2e/test_installed.py`)."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built beside the clone, whose own one stays as it is."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copyfile(ROOT / "zensical.toml", folder / "zensical.toml")
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([program, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "flows" / "site"


def search_for(page: Page, words: str) -> None:
    """Keys that are pressed before the page's script listens are lost: press them again, as a person does."""
    from playwright.sync_api import TimeoutError as NotYetError

    field, results = page.locator("input:focus"), page.get_by_text(re.compile(r"^[0-9]+ results?$"))
    for _ in range(10):
        with contextlib.suppress(NotYetError):
            if not field.count():
                page.keyboard.press("Control+k")
            field.fill(words, timeout=3_000)
            results.wait_for(timeout=5_000)
            return
    pytest.fail("the search finds nothing")


def test_pages_need_no_network_and_the_search_finds(site: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page()
            addresses: list[str] = []
            page.on("request", lambda request: addresses.append(request.url))
            page.goto((site / "concepts" / "triggers.html").as_uri())
            drawing = page.locator("svg.drawing")
            assert drawing.bounding_box()["width"] > 300
            assert "policy to approval (ask)" in drawing.get_attribute("aria-label")
            search_for(page, "compare-and-swap")
            assert [url for url in addresses if not url.startswith("file:")] == []
        finally:
            browser.close()


def test_each_page_of_the_navigation_is_built(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    """Menus and footers too; the few links to other sites are left out."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    places = {path: set(re.findall(r'\bid="?([^"\s>]+)', text)) for path, text in pages.items()}
    broken, num_links = [], 0
    for page, text in pages.items():
        for link in {html.unescape(found) for found in re.findall(r'(?:href|<img [^>]*src)="?([^"\s>]+)', text)}:
            file, _, place = link.partition("#")
            if page.name == "404.html" or re.match(r"\w+:", link):
                continue
            num_links += 1
            to = (page.parent / file).resolve() if file else page
            to = to / "index.html" if to.is_dir() else to
            if not to.exists() or (place and to in places and place not in places[to]):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []
    assert num_links > 5000


def test_the_site_leaves_room_in_the_wheel(site: Path) -> None:
    """Menus list their own part of the site alone: with all pages in each, the site grows by the square."""
    files = [path for path in site.rglob("*") if path.is_file() and path.name != "search.json"]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) <= LARGEST
