"""The page of a loop in a browser: it follows the rows that a loop records, and works without scripts."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tasks.host import processes, stores
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.state.outbox import LOOP_RUN, Outbox
from tests.chromium import chromium
from tests.integration.test_links import bearer
from tests.integration.test_page import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOOP = "tiny-20261127-120000-0a1b2c3d"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace whose only loop runs: this process holds it, and it trains nothing."""
    before = dict(os.environ)
    workspace = Workspace(tmp_path_factory.mktemp("loop-page"))
    workspace.make()
    stores.configure(workspace)
    folder = workspace.root / "projects" / "tiny"
    folder.mkdir(parents=True)
    (folder / "project.yaml").write_text("name: tiny\ndata: {source: data.csv, target: y}\n")
    (folder / "data.csv").write_text("x,y\n1,a\n")
    save_loop(state(workspace), record("running"))
    box = Outbox(state(workspace), LOOP)
    box.start_run(LOOP_RUN, LOOP, {})
    box.log("ingest", "done")
    box.log("search", "run")
    box.start_run("trial-0", "t", {}, parent=LOOP_RUN)
    box.params("trial-0", {"train.lr": 0.01, "<b>": 2})
    yield workspace
    os.environ.clear()
    os.environ.update(before)


def state(workspace: Workspace) -> Path:
    return workspace.state / "projects" / "tiny"


def record(ended: str) -> LoopRecord:
    return LoopRecord(LOOP, ended, "i", process=processes.identity(), began=time.time() - 60, step="search")


def epoch(box: Outbox, run: str, number: int) -> None:
    box.metrics(run, {"train_loss": 1 / number, "val_loss": 1.1 / number, "val_auc": 0.7, "samples_per_s": 900}, number)
    box.log("search", "progress", f"epoch {number}", number, 10)


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def test_an_open_page_follows_the_loop_over_a_restart_of_its_server(place: Workspace, browser: Browser) -> None:
    box = Outbox(state(place), LOOP)
    with serving(place) as port:
        page = browser.new_page(viewport={"width": 390, "height": 844}, extra_http_headers=bearer(place))
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/loops/{LOOP}")
        page.evaluate("window.isSame = true")
        for number in (1, 2, 3):
            epoch(box, "trial-0", number)
            page.get_by_text(f"{number} of 10").wait_for(timeout=20_000)
            page.locator("svg.chart").first.wait_for(timeout=20_000)
        page.get_by_role("button", name="Pause the log").click()
        epoch(box, "trial-0", 4)
        page.get_by_text("4 of 10").wait_for(timeout=20_000)
        assert "epoch 4" not in page.locator("#log").inner_text()
    epoch(box, "trial-0", 5)
    with serving(place, port=port):
        page.get_by_text("5 of 10").wait_for(timeout=20_000)
        for wrong in ("9" * 5000, "-1", "x"):
            headers = {**bearer(place), "Last-Event-ID": wrong}
            with httpx.stream("GET", f"http://127.0.0.1:{port}/loops/{LOOP}/events", headers=headers) as response:
                assert "event: loop" in itertools.islice(response.iter_lines(), 8)
        plain = browser.new_context(java_script_enabled=False, extra_http_headers=bearer(place)).new_page()
        plain.goto(f"http://127.0.0.1:{port}/loops/{LOOP}")
        assert plain.get_by_text("5 of 10").is_visible()
        assert plain.get_by_role("button", name="Pause the log").count() == 0
        plain.get_by_role("link", name="Stop").click()
        assert plain.get_by_role("button", name="Stop").is_visible()
        save_loop(state(place), record("failed"))
        page.get_by_role("link", name="Retry").wait_for(timeout=20_000)
        assert page.evaluate("window.isSame && document.documentElement.scrollWidth <= innerWidth")
    save_loop(state(place), record("running"))
    assert errors == []
