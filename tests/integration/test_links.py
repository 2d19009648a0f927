"""Every link of every page of the overview leads somewhere, in a browser, for a project in each state."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from models.monitoring.report import MonitoringReport
from models.project_spec.monitor_and_retrain import Monitor
from models.report.card import render_card
from models.report.monitoring import render_monitoring
from models.report.validation import render_validation
from models.triggers.signal import Decision, Signal
from tasks.host import processes, stores
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.champion import open_registry
from tasks.loop.history import LoopRecord, save_loop
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.prefect import events
from tests.chromium import chromium
from tests.integration.test_page import serving
from tests.told_facts import findings, window
from tests.unit.models.monitoring.conftest import breach
from tests.unit.models.report.test_card import card
from tests.unit.models.report.test_validation import MET, report

if TYPE_CHECKING:
    from playwright.sync_api import Browser
LINKS = "[...document.querySelectorAll('a')].map(a => [a.getAttribute('href') ?? '', a.href, a.innerText])"
PARTS = "[...document.querySelectorAll('[id]')].map(part => part.id)"
"""All at once: each question to the browser takes CPU, and the pages have hundreds of links."""
SPEC = "name: {name}\ndata: {{source: data.csv, target: y}}\n"
LOOPS = {"running": "running", "killed": "running", "failed": "failed", "rejected": "rejected"}
"""Projects without a champion, and what the book of their last loop says."""
CHAMPIONS = {"champion": None, "refused": "green", "alarmed": "red", "asked": None}
"""Projects with a champion, and the state of their last monitoring run."""


@pytest.fixture(scope="module")
def place(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace with a project in each state, made of files and registry entries: nothing is trained."""
    before = dict(os.environ)
    made = Workspace(tmp_path_factory.mktemp("links"))
    made.make()
    shutil.copytree(empty_store, made.state / "mlflow")
    stores.configure(made)
    for name in ("never", *LOOPS, *CHAMPIONS):
        folder = made.root / "projects" / name
        folder.mkdir(parents=True)
        (folder / "project.yaml").write_text(SPEC.format(name=name))
        (folder / "data.csv").write_text("x,y\n1,a\n")
    (made.root / "projects" / "broken").mkdir()
    (made.root / "projects" / "broken" / "project.yaml").write_text("data: {sorce: x}\n")
    for name, state in LOOPS.items():
        _loop(made, name, state)
    for name, watched in CHAMPIONS.items():
        _champion(made, name)
        _pages(made, name, watched)
    asked = Signal(id="data-1", kind="new_data", at=time.time(), reason="60 rows came")
    made_up = Decision(signal=asked, at=time.time(), action="ask", reasons=["a person decides"], flow_run="f" * 8)
    decisions.record(made.state / "projects" / "asked", made_up)
    wish = Signal(id="person-1", kind="person", at=time.time(), reason="Ada asked")
    events.send(made, events.of_signal("refused", wish))
    yield made
    os.environ.clear()
    os.environ.update(before)


def _loop(workspace: Workspace, name: str, state: str) -> None:
    process = processes.identity() if name != "killed" else {**processes.identity(), "started": 1.0}
    loop = LoopRecord(f"{name}-1", state, "i", process=process, began=time.time(), step="train")
    save_loop(workspace.state / "projects" / name, loop)


def _champion(workspace: Workspace, name: str) -> None:
    """Version 2 is the champion, version 3 was refused."""
    registry = open_registry(workspace, name)
    run = client().create_run(experiment_id(client(), workspace, name)).info
    for number in ("1", "2", "3"):
        registry.create(f"k{number}", f"{run.artifact_uri}/m", run.run_id, None, {"loopline.metric": "auc=0.7"}, "")
    registry.promote("1", None, reason="First")
    registry.promote("2", "1", reason="Better")
    registry.judge("3", {})


def _pages(workspace: Workspace, name: str, watched: str | None) -> None:
    state = workspace.state / "projects" / name
    (state / "reports").mkdir(parents=True)
    (state / "monitoring").mkdir()
    for stage in ("raw", "prepared"):
        (state / "reports" / f"validation-{stage}.html").write_text(render_validation(report(MET, success=True)))
    links = {path.stem: path.resolve().as_uri() for path in (state / "reports").iterdir()}
    (state / "card.html").write_text(render_card(card(project=name, links=links)))
    if watched:
        told = _findings(name, watched)
        (state / "monitoring" / "monitoring.html").write_text(render_monitoring(told, Monitor()))
        (state / "monitoring" / "monitoring.json").write_text(told.model_dump_json())


def _findings(name: str, state: str) -> MonitoringReport:
    breaches: list[Any] = [breach()] if state == "red" else []
    windows = [window(number, breaches=breaches, state=state) for number in range(3)]
    return findings(*windows, project=name, state=state)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium, or none."""
    with chromium() as running:
        yield running


def bearer(place: Workspace) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_path(place).read_text().strip()}"}


@pytest.mark.wide
def test_every_link_leads_somewhere(place: Workspace, browser: Browser) -> None:
    with serving(place) as port:
        base = f"http://127.0.0.1:{port}"
        page = browser.new_page(extra_http_headers=bearer(place))
        errors: list[str] = []
        page.on("console", lambda said: errors.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        waiting, seen = [f"{base}/"], dict[str, int]()
        dead = []
        while waiting:
            address = waiting.pop()
            answer = page.goto(address)
            assert answer is not None
            seen[address] = answer.status
            parts = page.evaluate(PARTS)
            for written, whole, text in page.evaluate(LINKS):
                where, _, part = whole.partition("#")
                if not where.startswith(base) or written == "#":
                    dead.append(f"{address}: {text!r} leads to {written!r}")
                elif part and where == address and part not in parts:
                    dead.append(f"{address}: there is no part {part!r}")
                elif where not in seen and where not in waiting:
                    waiting.append(where)
        assert dead == []
        assert {address: status for address, status in seen.items() if status != 200} == {}
        assert errors == []
        paths = {address.removeprefix(base) for address in seen}
        assert {f"/projects/{name}" for name in ("never", "broken", *LOOPS, *CHAMPIONS)} <= paths
        kinds = ("card", "validation-raw", "validation-prepared", "monitor")
        assert {f"/projects/alarmed/pages/{kind}" for kind in kinds} <= paths


@pytest.mark.wide
def test_a_report_is_reached_by_a_click_and_has_a_way_back(place: Workspace, browser: Browser) -> None:
    with serving(place) as port:
        page = browser.new_page(
            viewport={"width": 390, "height": 844}, color_scheme="dark", extra_http_headers=bearer(place)
        )
        page.goto(f"http://127.0.0.1:{port}/projects/alarmed")
        page.get_by_role("link", name="model card with the verdict").click()
        page.wait_for_url("**/projects/alarmed/pages/card")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 28)"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("link", name="validation-raw").click()
        page.wait_for_url("**/projects/alarmed/pages/validation-raw")
        page.get_by_role("link", name="alarmed", exact=True).click()
        page.wait_for_url("**/projects/alarmed")
