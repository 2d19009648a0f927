"""One thing is told in one way: every page, address, command and record names the same step, end and version."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from click.testing import CliRunner
from prefect.exceptions import TerminationSignal

from flows.commands.status import command as status
from models.errors import GateRefused, TrainingError
from models.pipeline.records import StepRecord
from models.pipeline.steps import BY_NAME
from tasks.dashboard.app import application
from tasks.host import processes
from tasks.host.http_guard import token_of
from tasks.host.leases import leased
from tasks.host.workspace import Project
from tasks.loop.history import LoopRecord, last_loop, lease_of, read_loops, save_loop
from tasks.loop.lifecycle import _end, open_stage
from tasks.loop.loop import Loop, StepResult
from tasks.loop.loop_pages import PAGE_OF_STEP, page_of
from tasks.mlflow import registry_reader
from tasks.operations.reap import reap
from tasks.platform import report_pages
from tasks.platform.report_pages import address_of, loop_pages
from tasks.platform.services import ServiceState
from tasks.prefect import flow_runs
from tasks.state.outbox import LOOP_RUN
from tests.conftest import MakeProject
from tests.serving import register
from tests.stored_events import stored_events
from tests.wide import wide

DEAD = {**processes.identity(), "started": 1.0}
OVERVIEW = "http://127.0.0.1:4300"


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project("tiny", "search: {trials: 2}\n")


class Browser:
    """Gets the dashboard's pages, without a server."""

    def __init__(self, project: Project) -> None:
        self.transport = httpx.ASGITransport(application(project.workspace, "127.0.0.1"))
        self.headers = {"authorization": f"Bearer {token_of(project.workspace)}"}

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self.transport, base_url=OVERVIEW, headers=self.headers) as client:
                return await client.get(path)

        return asyncio.run(ask())


@pytest.fixture
def browser(project: Project) -> Browser:
    return Browser(project)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


@contextmanager
def running(project: Project, **more: Any) -> Iterator[tuple[Loop, LoopRecord]]:
    """A loop as `open_loop` runs it, without its threads."""
    with open_stage(project) as loop, leased(project.workspace.state, lease_of(loop.state)) as lease:
        book = LoopRecord(loop.id, "running", "i", str(project.folder), processes.identity(), 1e9, flow_run="r1")
        save_loop(loop.state, replace(book, **more))
        loop.lease = lease
        loop.outbox = type(loop.outbox)(loop.state, loop.id)
        loop.outbox.start_run(LOOP_RUN, loop.id, {})
        yield loop, book


def did(loop: Loop, step: str, digest: str = "d", **result: Any) -> None:
    record = StepRecord(step=step, key="k", parts={}, digest=digest, result=result, loop_id=loop.id, finished=1.0)
    loop.done[step] = record


class Ending(NamedTuple):
    state: str
    outcome: str
    run: str
    why: str


ENDINGS: list[tuple[BaseException | None, dict[str, str], Ending]] = [
    (TrainingError("the loss is NaN"), {}, Ending("failed", "failed", "FAILED", "the loss is NaN")),
    (GateRefused("age is negative"), {}, Ending("rejected", "rejected", "FAILED", "age is negative")),
    (KeyboardInterrupt(), {}, Ending("cancelled", "cancelled", "KILLED", "a person pressed Ctrl-C")),
    wide(TerminationSignal(signal=15), {}, Ending("failed", "failed", "FAILED", "SIGTERM")),
    (
        TerminationSignal(signal=15),
        {"state_type": "CANCELLING"},
        Ending("cancelled", "cancelled", "KILLED", "a person cancelled its run in Prefect"),
    ),
    (None, {}, Ending("killed", "failed", "KILLED", "it was killed")),
    wide(None, {"state_type": "CANCELLED"}, Ending("cancelled", "cancelled", "KILLED", "a person cancelled its run")),
]


@pytest.mark.parametrize(("error", "prefect", "ending"), ENDINGS)
def test_every_page_tells_the_same_step_and_the_same_end(
    project: Project,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    prefect: dict[str, str],
    ending: Ending,
) -> None:
    """`train` runs, though the spec's own plan owes `ingest`: the loop was run with `-s`."""
    if prefect:
        monkeypatch.setenv("PREFECT_API_URL", "http://there/api")
        monkeypatch.setenv(flow_runs.FLOW_RUN, "r1")
        monkeypatch.setattr("tasks.operations.reap.is_working", lambda _: True)
        monkeypatch.setattr(flow_runs, "ask", lambda *_: prefect if _[-1] == "GET" else [])

    def act(*_: Any) -> StepResult:
        loop.outbox.metrics(LOOP_RUN, {"device_s": 30.0}, 1)
        assert_told(project, browser, "running", "train")
        raise error or RuntimeError

    with running(project) as (loop, book):
        for step in BY_NAME["train"].after:
            did(loop, step)
        with pytest.raises(BaseException):  # noqa: B017, PT011 - each kind that ends a loop
            loop.carry_out("train", act)
        if error is not None:
            _end(loop, book, error)
    if error is None:
        book = last_loop(loop.state) or book
        save_loop(loop.state, replace(book, process=DEAD))
        if not prefect:
            assert_told(project, browser, "killed", "train")  # before the reaper comes
        reap(project.workspace)
    assert_told(project, browser, ending.state, "train")
    (past,) = read_loops(loop.state)
    assert (past.outcome, ending.why in past.reason) == (ending.outcome, True)
    assert past.device_seconds >= 30.0, "what was computed counts, however the loop ended"
    (event,) = stored_events(project.workspace)
    assert event["labels"]["loopline.outcome"] == ending.outcome
    (end,) = [line for line in loop.outbox.lines().values() if line["op"] == "end"]
    assert end["status"] == ending.run
    for text in (event["text"], text_of(browser.get("/projects/tiny").text)):
        assert ending.why in text
        assert "champion stays" not in text, "there is none"


def assert_told(project: Project, browser: Browser, state: str, step: str) -> None:
    page = text_of(browser.get("/projects/tiny").text)
    lines = CliRunner().invoke(status, ["tiny"], catch_exceptions=False).stdout
    plain = json.loads(CliRunner().invoke(status, ["tiny", "--json"], catch_exceptions=False).stdout)["projects"][0]
    loop = last_loop(project.state("tiny"))
    assert loop is not None
    assert re.search(rf"{loop.loop_id} {state} at {step}\b", page)
    assert re.search(rf"last loop +{state} at {step}\b", lines)
    assert (plain["state"], plain["step"], plain["loop_id"]) == (state, step, loop.loop_id)
    assert f"{state}" in text_of(browser.get("/").text)


def loop_of_a_version(project: Project, version: str) -> Loop:
    """A loop whose steps with pages have run, unless an earlier loop of the same version did them."""
    with running(project) as (loop, book):
        for step in BY_NAME["card"].after:
            did(loop, step, version=version)
        did(loop, "ingest", digest=version)
        did(loop, "prepare")

        for step, page in PAGE_OF_STEP.items():
            content = f"<main>{page} of version {version}</main>"

            def act(_: Any, folder: Path, page: str = page, content: str = content) -> StepResult:
                (folder / f"{page}.html").write_text(content)
                (loop.state / "card.html").write_text(content)
                return StepResult(result={"version": version})

            loop.carry_out(step, act)
        _end(loop, book, None)
    return loop


def test_every_address_keeps_showing_its_own_loop(
    project: Project, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 is the champion; version 2, of a later loop, lost."""
    up = [ServiceState("overview", "running", OVERVIEW)]
    monkeypatch.setattr(report_pages, "services_of", lambda _: up)
    loops = {version: loop_of_a_version(project, version) for version in ("1", "2")}
    for number, alias in (("1", "champion"), ("2", "challenger")):
        register(project.workspace, "tiny", number, {"loopline.loop_id": loops[number].id}, project.folder, alias)
    monkeypatch.setattr(registry_reader, "files_at", lambda *_: "")

    html = browser.get("/projects/tiny").text
    links = {text: path for path, text in re.findall(r'<a href="(/projects/tiny/loops/[^"]*)">([^<]*)</a>', html)}
    for number, role in (("1", "champion"), ("2", "challenger")):
        loop = loops[number]
        assert loop_pages(loop.state, loop.id) == list(PAGE_OF_STEP.values())
        for page in PAGE_OF_STEP.values():
            here = page_of(loop.state, loop.id, page)
            address = address_of(project.workspace, "tiny", here)  # as Prefect's artifacts have it
            assert f"{page} of version {number}" in browser.get(address).text
            path = address.removeprefix(OVERVIEW)
            assert loop.id in path
            assert any(text.startswith(f"{role} {number}: ") for text, place in links.items() if place == path)
    again = loop_of_a_version(project, "2")  # nothing has changed: each step was done before
    assert "card of version 2" in browser.get(f"/projects/tiny/loops/{again.id}/card").text
    assert "card of version 1" in browser.get(f"/projects/tiny/loops/{loops['1'].id}/card").text
    assert browser.get("/projects/tiny/loops/tiny-9/card").status_code == 404


def test_without_the_registry_every_page_tells_what_the_state_database_knows(
    project: Project, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(project, step="train") as (loop, book):
        loop.at = "train"
        _end(loop, book, TrainingError("the loss is NaN"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert_told(project, browser, "failed", "train")
    pages = [text_of(browser.get(path).text) for path in ("/", "/projects/tiny")]
    shown = [*pages, CliRunner().invoke(status, [], catch_exceptions=False).stdout]
    for text in shown:
        assert text.count("cannot be reached") == 1, "one message for one cause"
        assert "there is no champion" not in text
        assert "nothing to do" not in text
        assert "up to date" not in text
