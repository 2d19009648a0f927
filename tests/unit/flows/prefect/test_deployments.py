"""Deployments: what the spec makes of each flow, and that Prefect means by a schedule what the spec means."""

import asyncio
import threading
import urllib.error
from contextlib import nullcontext
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import psutil
import pytest
from prefect.deployments.runner import DeploymentApplyError
from prefect.exceptions import PrefectHTTPStatusError
from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.prefect import deployments
from flows.prefect.deployments import _schedule, is_busy, planned, prefect_file
from models.errors import StoreError
from models.project_spec.reader import read_spec
from models.project_spec.schedule import Schedule, parse
from tasks.host.workspace import Workspace
from tests.conftest import MakeProject

SERVER = {"cron": CronSchedule, "interval": IntervalSchedule, "rrule": RRuleSchedule}


def prefects(schedule: Schedule, after: datetime, count: int) -> list[float]:
    """When Prefect's scheduler would begin runs."""
    told = _schedule(schedule, True)
    fields: dict[str, Any] = {schedule.kind: getattr(told, schedule.kind), "timezone": told.timezone}
    if schedule.kind == "interval":
        fields["anchor_date"] = told.anchor_date
    dates = asyncio.run(SERVER[schedule.kind](**fields).get_dates(count, start=after))
    return [date.timestamp() for date in dates]


def ours(schedule: Schedule, after: datetime, count: int) -> list[float]:
    def times() -> Any:
        at = after.timestamp()
        while True:
            at = schedule.next(at)
            yield at

    return list(islice(times(), count))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna", "America/New_York"])
@pytest.mark.parametrize(
    "text",
    [
        "*/15 * * * *",
        "0 3 * * MON",
        "30 6 1,15 * *",
        "0 0 L * *",
        "5/15 */7 * * *",
        "0 0 1-31/2 * 1",
        "0 0 */2 * *",
        "0 0 * * MON#2",
        "0 0 * * 5-7",
        "every 15 minutes",
        "every 6 hours",
        "every day",
        "every 2 weeks",
        "RRULE:FREQ=MONTHLY;BYMONTHDAY=1;BYHOUR=4",
        "DTSTART:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,TH",
    ],
)
def test_prefect_begins_runs_when_the_spec_says(text: str, zone: str) -> None:
    schedule = parse(text, zone)
    for after in (datetime(2026, 1, 13, 11, 7, 1, tzinfo=UTC), datetime(2026, 7, 2, 22, 31, 1, tzinfo=UTC)):
        assert prefects(schedule, after, 4) == ours(schedule, after, 4)


def test_each_flow_has_a_deployment_and_loops_share_a_queue(make_project: MakeProject) -> None:
    project = make_project(spec="retrain: {schedule: '0 3 * * *', timezone: Asia/Tokyo}\nmonitor: {schedule: null}\n")
    found = {one.flow: one for one in planned(project, read_spec(project.spec_path))}
    assert {"train", "retrain"} <= set(found)
    assert found["train"].schedule is None
    schedule = found["retrain"].schedule
    assert schedule is not None
    assert (schedule.text, schedule.timezone) == ("0 3 * * *", "Asia/Tokyo")
    for flow in ("train", "retrain"):
        assert found[flow].queue == "tiny"
        assert found[flow].entrypoint == f"flows.{flow}.{flow}"
        assert found[flow].parameters == {"project": "tiny"}
    assert "monitor" not in found or found["monitor"].schedule is None


def test_a_project_elsewhere_is_named_by_its_folder(make_project: MakeProject, tmp_path: Any) -> None:
    project = make_project(folder=tmp_path / "elsewhere")
    (train, *_) = planned(project, read_spec(project.spec_path))
    assert train.parameters == {"project": str(tmp_path / "elsewhere")}


def test_the_file_for_prefects_own_program_says_the_same(make_project: MakeProject) -> None:
    from ruamel.yaml import YAML

    project = make_project(spec="retrain: {schedule: every 90 minutes}\n")
    told = YAML(typ="safe").load(prefect_file([project]))
    assert told["pull"] == []
    by_entry = {one["entrypoint"]: one for one in told["deployments"]}
    assert by_entry["flows.train.train"]["schedules"] == []
    assert by_entry["flows.retrain.retrain"]["schedules"][0]["interval"] == 5400
    assert {one["work_pool"]["name"] for one in told["deployments"]} == {"loopline"}
    assert by_entry["flows.retrain.retrain"]["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def wrapped(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def answered(code: int) -> PrefectHTTPStatusError:
    request = httpx.Request("GET", "http://127.0.0.1:1")
    return PrefectHTTPStatusError("refused", request=request, response=httpx.Response(code, request=request))


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (answered(503), True),
        (answered(409), False),
        (httpx.ReadTimeout("late"), True),
        (httpx.ConnectError("refused"), False),
        (wrapped(DeploymentApplyError("no"), answered(503)), True),
        (wrapped(StoreError("no"), urllib.error.HTTPError("http://a", 503, "busy", Message(), None)), True),
        (wrapped(StoreError("no"), urllib.error.HTTPError("http://a", 404, "gone", Message(), None)), False),
        (wrapped(StoreError("no"), TimeoutError("late")), True),
        (DeploymentApplyError("a wrong schedule"), False),
    ],
    ids=repr,
)
def test_a_busy_server_is_tried_again_and_one_that_refuses_is_not(error: Exception, busy: bool) -> None:
    assert is_busy(error) == busy


@pytest.mark.parametrize(("num_taken", "fails"), [(9, False), (1, True)], ids=["goes on", "stands still"])
def test_a_slow_server_is_waited_for_while_it_takes_deployments(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, num_taken: int, fails: bool
) -> None:
    """Each attempt takes longer than the patience, and ends in a failure; the tenth would succeed."""
    now, attempts = [0.0], [0]

    def attempt(_: Any, __: Any, ___: Any, ____: Any, ids: dict[tuple[str, str], UUID], _____: Any) -> None:
        now[0] += deployments.PATIENCE_S + 1
        attempts[0] += 1
        if attempts[0] <= num_taken:
            ids["train", str(attempts[0])] = uuid4()
        if attempts[0] < 10:
            raise httpx.ReadTimeout("late")

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(deployments, "time", clock)
    monkeypatch.setattr(deployments, "_deploy", attempt)
    monkeypatch.setattr(deployments, "_opened_client", nullcontext)
    with pytest.raises(StoreError, match="did not take the deployments") if fails else nullcontext():
        deployments.deploy(workspace, [], note=lambda _: None)
    assert attempts[0] == (2 if fails else 10)


class _Broken(BaseHTTPRequestHandler):
    """Fails at each request, and keeps its connection open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_no_connection_is_left_to_a_server_that_tells_no_version(workspace: Workspace) -> None:
    """Prefect's own context leaves one, which the collector found in a later test."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Broken) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {PREFECT_API_URL: f"http://127.0.0.1:{server.server_port}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
        with temporary_settings(settings), pytest.raises(StoreError, match="Failed to reach API") as refused:
            deployments.deploy(workspace, [], note=lambda _: None)
        left = [c for c in psutil.Process().net_connections() if c.raddr and c.raddr.port == server.server_port]
        server.shutdown()
    assert left == [], refused.value
