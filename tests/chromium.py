"""A browser for tests of pages: Debian's chromium without a window."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


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
