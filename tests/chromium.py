"""A browser for tests of pages: Debian's chromium without a window, and what is wrong with the page that it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
VIEWS = {"phone": (PHONE, "dark"), "desk": (DESK, "light"), "dark": (DESK, "dark")}
"""The views in which pages are looked at, by their names: the size of the window and the colours."""
STRUCTURE = """() => {
  const name = part => `${part.tagName} ${part.getAttribute('class') ?? ''} ${part.getAttribute('role') ?? ''}`;
  const around = part => [part, part.parentElement, part.closest('section, li')].filter(Boolean);
  const path = part => around(part).map(name).join('/');
  return [...new Set([...document.querySelectorAll('body *')].map(path))];
}"""
"""The kinds of elements of a page: what is wrong with an element is wrong with all of its kind."""
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll('body *')].filter(part => part.getBoundingClientRect().right > innerWidth + 1)
    .filter(part => !part.closest('.scroll')).slice(0, 3).map(part => part.outerHTML.slice(0, 120))"""
"""The elements that make the whole page scroll sideways; a table in a box of its own may."""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser, and close it after the block; skip the test where there is none."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}: `apt-get install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        try:
            yield running
        finally:
            running.close()


def serious(page: Page) -> list[str]:
    """What axe-core calls serious or critical of a page, with the first element of each kind."""
    from axe_playwright_python.sync_playwright import Axe

    violations = Axe().run(page).response["violations"]
    severe = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
    return [f"{violation['id']}: {violation['help']}: {violation['nodes'][0]['html'][:160]}" for violation in severe]


def use_view(page: Page, view: str) -> None:
    """Show the page in one of `VIEWS`, without loading it again."""
    size, colours = VIEWS[view]
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    page.emulate_media(color_scheme="dark" if colours == "dark" else "light")


class Inspector:
    """Says what is wrong with pages: too wide for a phone, or serious for axe-core.

    axe-core takes most of the time, so it looks only at pages that have a kind of element which no earlier one had. It
    waits, which no script may on a page in a sandbox: it has a page of its own, which heeds no policy.

    Args:
        browser: Opens that page.
        headers: Sent with each of its requests.
    """

    def __init__(self, browser: Browser, headers: dict[str, str]) -> None:
        self._page = browser.new_page(bypass_csp=True, extra_http_headers=headers)
        self._kinds: set[str] = set()

    def faults(self, page: Page) -> list[str]:
        """Return what is wrong with the page in the light of a desk, and in the dark on a phone."""
        use_view(page, "phone")
        faults = [f"phone: wider than the window: {part}" for part in page.evaluate(TOO_WIDE)]
        kinds = {*page.evaluate(STRUCTURE)}
        if not kinds <= self._kinds:
            self._page.goto(page.url)
            for view in ("phone", "desk"):
                use_view(self._page, view)
                faults += [f"{view}: {fault}" for fault in serious(self._page)]
        self._kinds |= kinds
        return faults
