"""The platform, in order: up, a schedule, a loop through a deployment, kills of everything, down; nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from models.pipeline.steps import BY_NAME
from tasks.host import database, server_access
from tasks.host.http_guard import token_path
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.mlflow import registry_reader
from tasks.platform.service_main import marked
from tasks.platform.services import SERVICES, services_of, supervisor
from tasks.prefect.flow_runs import FLOW_RUN, ask
from tests.fault.conftest import SPEC
from tests.running import Loopline, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # months, and platforms killed, take longer than a test may

MORE = """\
monitor: {schedule: null}
retrain: {on: [new_data], cooldown_s: 0, schedule: "0 3 * * MON", timezone: Europe/Vienna}
serve: {up: true}
"""


class Platform(Loopline):
    """A workspace whose platform is up."""

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.home)

    @property
    def api(self) -> str:
        return f"{self.services()['prefect'].url}/api"

    def services(self) -> dict[str, Any]:
        return {state.name: state for state in services_of(self.workspace)}

    def deployment(self, flow: str) -> dict[str, Any]:
        found = ask(self.api, "deployments/filter", {})
        return next(one for one in found if one["entrypoint"] == f"flows.{flow}.{flow}" and one["name"] == "whole")

    def begin_run(self, flow: str, **parameters: Any) -> str:
        made = ask(self.api, f"deployments/{self.deployment(flow)['id']}/create_flow_run", {"parameters": parameters})
        return str(made["id"])

    def run(self, run: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = ask(self.api, "flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return found[0]

    def runs_of(self, flow: str, *states: str) -> list[dict[str, Any]]:
        """The deployment's flow runs that are in one of the states."""
        wanted = {"id": {"any_": [self.deployment(flow)["id"]]}}
        found: list[dict[str, Any]] = ask(
            self.api,
            "flow_runs/filter",
            {"deployments": wanted, "flow_runs": {"state": {"type": {"any_": list(states)}}}},
        )
        return found

    def lines_of(self, run: str) -> dict[str, set[str]]:
        """Each task of a flow run, and those from which Prefect's page draws a line to it."""
        nodes = dict(ask(self.api, f"flow_runs/{run}/graph-v2", None, "GET")["nodes"])
        return {node["label"]: {nodes[parent["id"]]["label"] for parent in node["parents"]} for node in nodes.values()}

    def run_state(self, run: str) -> str:
        return str(self.run(run)["state_name"])


CHANGES = {
    "prefect": "/api/flows/",
    "mlflow": "/api/2.0/mlflow/experiments/create",
    "overview": "/trigger/whole",
    "optuna": "/api/studies",
    "serve": "/invocations",
}
"""Of each service that listens, an address that changes or computes something."""
REFUSALS = {400, 401, 403, 421}
SHOWN = ("prefect", "mlflow", "overview", "optuna")
"""Services with a page."""


def refusal(url: str, **headers: str) -> int:
    """The status of a request that should be refused."""
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def processes_of(run: str) -> list[psutil.Process]:
    """The processes that carry a flow run out, on which Prefect's worker has put its id."""
    return [
        process for process in psutil.process_iter(["environ"]) if (process.info["environ"] or {}).get(FLOW_RUN) == run
    ]


def halt(home: Platform, run: str) -> list[psutil.Process]:
    """Stop the processes of a flow run at a moment when none of them holds the lock of the state database."""

    def stopped() -> list[psutil.Process]:
        processes = processes_of(run)
        for process in processes:
            process.suspend()
        with contextlib.closing(sqlite3.connect(home.workspace.state / database.FILE, timeout=0.1)) as connection:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError:
                for process in processes:
                    process.resume()
                return []
        return processes

    return eventually(stopped, "the run had no process, or never let go of the database")


@pytest.fixture(autouse=True)
def _secret(home: Platform) -> None:
    """These tests speak to the platform's own servers."""
    os.environ.update(server_access.credentials(home.workspace, {}))


@pytest.fixture(scope="module")
def home(copy_whole) -> Iterator[Platform]:
    """A workspace with two projects, of which `whole` was run before the platform is up."""
    made = Platform(copy_whole("platform").home)
    for name in ("whole", "gone"):
        made.project(name, SPEC + MORE)
    yield made
    made("down", "--force")


def test_up_says_where_everything_is_and_again_changes_nothing(home: Platform):
    up = home("up", "--json").ok()
    told = up.json["services"]
    secret = server_access.secret_path(home.workspace)
    assert str(secret) in up.err, "Prefect's page asks for it"
    assert str(token_path(home.workspace)) in up.err, "the overview asks for it"
    os.environ.update(server_access.credentials(home.workspace, {}))
    assert {one["state"] for one in told.values()} <= {"running", "starting"}
    for name in SHOWN:
        assert told[name]["url"].startswith("http://127.0.0.1:")
        token = {"Authorization": f"Bearer {token_path(home.workspace).read_text().strip()}"}
        headers = token if name == "overview" else registry_reader.authorization()
        page = urllib.request.Request(told[name]["url"], headers=headers)
        with urllib.request.urlopen(page, timeout=60) as answered:
            assert answered.status == 200
    kinds = {one["slug"] for one in ask(home.api, "block_types/filter", {})}
    assert {"slack-webhook", "custom-webhook"} <= kinds, "Prefect's UI has its catalogue"
    again = home("up", "--json").ok().json["services"]
    assert {name: one["pid"] for name, one in again.items()} == {name: one["pid"] for name, one in told.items()}
    status = home("status", "--json").ok().json["services"]
    assert {name: status[name]["url"] for name in ("prefect", "mlflow", "overview")} == {
        name: told[name]["url"] for name in ("prefect", "mlflow", "overview")
    }


def test_every_service_refuses_a_foreign_page_and_asks_for_a_secret(home: Platform):
    """A name that is rebound to this machine, a page of another site, another user of this machine."""
    assert {service.name for service in SERVICES if service.port} == set(CHANGES)
    services = home.services()
    for name, path in CHANGES.items():
        url = f"{services[name].url}{path}"
        assert refusal(url, Host="evil.example") in REFUSALS, name
        assert refusal(services[name].url, Host="evil.example") in REFUSALS, name
        assert refusal(url, Origin="https://evil.example") in REFUSALS, name
        assert refusal(url) == 401, name
        if name != "prefect":  # whose page is its program alone, without data
            assert refusal(services[name].url) == 401, name


def test_another_port_while_it_is_up_is_refused(home: Platform):
    refused = home("up", "--port", "mlflow=1")
    assert refused.code == 2
    assert "`loopline down` first" in refused.err


def test_a_cron_schedule_of_the_spec_gets_its_runs(home: Platform):
    found = home.deployment("retrain")
    (schedule,) = found["schedules"]
    assert (schedule["schedule"]["cron"], schedule["schedule"]["timezone"]) == ("0 3 * * MON", "Europe/Vienna")
    wanted = {"deployments": {"id": {"any_": [found["id"]]}}}
    runs = eventually(lambda: ask(home.api, "flow_runs/filter", wanted), "the scheduler made no runs")
    assert {run["state_type"] for run in runs} == {"SCHEDULED"}
    assert all(run["auto_scheduled"] for run in runs)


def test_what_a_person_switched_off_stays_off_and_a_removed_project_goes(home: Platform):
    found = home.deployment("train")
    ask(home.api, f"deployments/{found['id']}", {"paused": True}, "PATCH")
    assert {one["name"] for one in ask(home.api, "deployments/filter", {})} == {"whole", "gone"}
    (home.home / "projects" / "gone" / "project.yaml").unlink()
    done = home("deploy", "--json").ok()
    assert "train/gone: its project is gone" in done.err
    assert {"train/whole", "retrain/whole"} <= {one["deployment"] for one in done.json}
    assert {one["name"] for one in ask(home.api, "deployments/filter", {})} == {"whole"}
    assert home.deployment("train")["paused"]
    ask(home.api, f"deployments/{found['id']}", {"paused": False}, "PATCH")


@pytest.mark.wide
def test_new_data_begins_a_loop_that_outlives_kills_of_worker_server_and_store(home: Platform):
    """Monitoring sees it, its event begins a run through Prefect's automation, the policy decides, the loop runs."""
    first = home.book("whole")["loop_id"]
    table = home.home / "projects" / "whole" / "penguins.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, *lines[1:60]]) + "\n")
    os.utime(table, (time.time() - 60, time.time() - 60))  # one that is just being written is left alone
    home.begin_run("monitor")
    eventually(lambda: home.book("whole")["loop_id"] != first, "no loop came of the new data")
    loop_id = home.book("whole")["loop_id"]
    (run,) = home.runs_of("retrain", "RUNNING")
    halted = halt(home, run["id"])  # so that it does not end before it is killed
    second = home.begin_run("train")
    refused = home("down")
    assert refused.code == 1
    assert loop_id in refused.err
    assert "--wait" in refused.err
    assert home.run_state(second) != "Running", "one loop of a project at a time"
    before = home.services()
    for name in ("worker", "prefect", "mlflow"):
        os.kill(before[name].pid, signal.SIGKILL)
    for process in halted:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    eventually(lambda: home.services()["worker"].restarts == 1, "the worker's end was not noticed")
    home("up").ok()
    after = home.services()
    restarts = {name: state.restarts for name, state in after.items()}
    assert restarts == {name: int(name in ("worker", "prefect", "mlflow")) for name in after}
    detail = after["mlflow"].detail
    assert detail.removeprefix("started again after: ") == "terminated by SIGKILL", "with what precedes it once it runs"
    assert after["prefect"].url == before["prefect"].url
    (run,) = eventually(lambda: home.runs_of("retrain", "COMPLETED", "FAILED", "CRASHED"), "the run never ended")
    assert run["state_name"] == "Completed", run["state"]["message"]
    assert run["parameters"]["signal"]["kind"] == "new_data"
    assert run["name"] == loop_id, "it went on where it was"
    assert home.versions("whole") == [1, 2]
    assert home.aliases("whole")["champion"] in (1, 2)
    (decided,) = decisions.read(home.state("whole"))
    assert (decided.action, decided.signal.id) == ("retrain", run["parameters"]["signal"]["id"])
    eventually(lambda: home.run_state(second) == "Completed", f"the second ended as {home.run_state(second)}")
    lines = {name: set(step.after) for name, step in BY_NAME.items()}
    eventually(lambda: home.lines_of(second) == lines, "Prefect's page draws other lines between the steps")


@pytest.mark.wide  # of a smaller platform in `tests/integration/test_supervision.py`
def test_a_killed_supervisord_is_put_right_by_the_next_up(home: Platform):
    note = supervisor(home.workspace)
    assert note is not None
    urls = {name: state.url for name, state in home.services().items() if state.url}
    os.kill(note["process"]["pid"], signal.SIGKILL)
    home("up").ok()
    assert {name: state.url for name, state in home.services().items() if state.url} == urls, "bookmarks go on working"
    assert not {state.state for state in home.services().values()} - {"running", "starting"}


def test_down_leaves_nothing(home: Platform):
    urls = {name: state.url for name, state in home.services().items() if state.url}
    home("down", "--wait").ok()
    assert list(marked(home.workspace)) == []
    assert [one for one in psutil.process_iter() if str(home.home) in " ".join(command_of(one))] == []
    for url in urls.values():
        with (
            pytest.raises(OSError, match="refused"),
            socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 1),
        ):
            pass
    assert not (home.workspace.platform / "supervisor.json").exists()
    assert not list((home.home / ".loopline").rglob("*.tmp"))
    assert {state.state for state in home.services().values()} == {"stopped"}
    assert "nothing of the platform was running" in home("down").ok().out


@pytest.mark.soak
def test_services_that_are_started_cold_run(home: Platform):
    """Each day they are forked (`tests/warm_python.py`); three of them start cold in their own tests."""
    home("down", "--force")
    home("up", PYTHONSAFEPATH="1").ok()
    assert not {state.state for state in home.services().values()} - {"running", "starting"}


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
