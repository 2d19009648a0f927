"""From an event to a run of the `retrain` flow, through a real Prefect server and its automations."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from unittest import mock

import httpx
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import SetStateStatus
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Running
from prefect.utilities.processutils import command_from_string

from flows.prefect import work_pool
from flows.prefect.deployments import deploy
from models.errors import StoreError, UsageError
from models.launch import launched
from models.triggers.signal import Kind, Signal
from tasks.host.workspace import Project, Workspace
from tasks.loop import decisions
from tasks.platform import idle_monitoring
from tasks.platform.open_signals import ask_again
from tasks.prefect import events, flow_runs
from tasks.prefect.events import Event, of_signal, send, waiting
from tasks.prefect.flow_runs import ask
from tasks.prefect.worker import pool_of
from tests import warm
from tests.conftest import MakeProject
from tests.integration.conftest import ROOT
from tests.running import eventually
from tests.wide import wide

OTHER_SCHEDULES = ("every 90 minutes", "RRULE:FREQ=MONTHLY;BYMONTHDAY=1;BYHOUR=4")
QUIET_S = 2.0
NUM_RUNS = 2
STORM = 100  # a thousand cost the server a minute; the policy is tested with them


@pytest.fixture
def client(automating: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncPrefectClient]:
    monkeypatch.setenv("PREFECT_API_URL", automating)
    settings = {PREFECT_API_URL: automating, PREFECT_API_AUTH_STRING: os.environ["PREFECT_API_AUTH_STRING"]}
    with temporary_settings(settings), get_client(sync_client=True) as client:
        yield client


@pytest.fixture
def undeployed(make_project: MakeProject, client: SyncPrefectClient) -> Project:
    """A project whose policy lets new data begin a loop; of its own name, for all tests share the server."""
    return make_project(f"tiny-{secrets.token_hex(3)}", "retrain: {on: [new_data], min_new_labels: 5}\n")


@pytest.fixture
def project(undeployed: Project) -> Project:
    """The same, deployed: that takes a CPU-second."""
    redeploy(undeployed)
    return undeployed


def redeploy(project: Project, **environ: str) -> None:
    os.environ.update(environ)
    deploy(project.workspace, project.workspace.projects(), note=lambda text: None)


def a_signal(number: int = 0, kind: Kind = "new_data") -> Signal:
    return Signal(id=f"s{number}", kind=kind, at=time.time(), reason='3 new rows, <b>"quoted"</b>', evidence={"n": 3})


def runs(client: SyncPrefectClient, project: Project) -> list[FlowRun]:
    deployment = client.read_deployment_by_name(f"retrain/{project.folder.name}")
    only = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
    return client.read_flow_runs(deployment_filter=only, limit=200)


def automations(client: SyncPrefectClient, project: Project) -> dict[str, Any]:
    found = client.read_automations(limit=200)
    return {one.name: one for one in found if f"owner:{project.folder.name}" in one.tags}


def test_an_event_begins_a_run_with_its_signal(client: SyncPrefectClient, project: Project) -> None:
    assert send(project.workspace, of_signal(project.folder.name, a_signal()))
    (run,) = eventually(lambda: runs(client, project))
    assert Signal.model_validate(run.parameters["signal"]) == a_signal().model_copy(
        update={"at": run.parameters["signal"]["at"]}
    )
    assert run.parameters["trigger"] == "new_data"
    send(project.workspace, of_signal(project.folder.name, a_signal(kind="drift")))
    send(project.workspace, Event(name="loopline.person.asked", project=project.folder.name, text="now, please"))
    (asked,) = eventually(lambda: [other for other in runs(client, project) if other.id != run.id])
    assert asked.parameters["signal"] is None, "a person may ask without one"
    assert asked.parameters["trigger"] == "person"
    time.sleep(QUIET_S)
    assert len(runs(client, project)) == 2, "the policy does not name drift, so it has no automation"


@pytest.mark.wide
def test_a_storm_of_events_begins_one_run(client: SyncPrefectClient, project: Project) -> None:
    posted = [events.posted(of_signal(project.folder.name, a_signal(number))) for number in range(STORM)]
    client._client.post("/events", json=posted).raise_for_status()
    eventually(lambda: runs(client, project))
    send(project.workspace, Event(name="loopline.person.asked", project=project.folder.name, text="the last"))
    found = eventually(lambda: len(all_runs := runs(client, project)) > 1 and all_runs)
    assert sorted(run.parameters["trigger"] for run in found) == ["new_data", "person"]


def test_a_signal_whose_event_prefect_lost_is_asked_again(
    client: SyncPrefectClient, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the event, and was killed before an automation heard it."""
    with monkeypatch.context() as lossy:
        lossy.setattr(events, "ask", lambda api, path, *a, **k: None if path == "events" else ask(api, path, *a, **k))
        assert send(project.workspace, of_signal(project.folder.name, a_signal()))
    assert runs(client, project) == []
    assert "sent again" in ask_again(project.workspace, time.time() + 130)[0]
    (run,) = eventually(lambda: runs(client, project))
    assert run.parameters["signal"]["id"] == a_signal().id
    assert ask_again(project.workspace, time.time() + 9000) == [], "a run that names it is due"


def test_a_run_that_crashed_before_it_began_is_begun_again(client: SyncPrefectClient, project: Project) -> None:
    """So Prefect leaves it when its server is killed, or too busy, while a worker submits it."""
    send(project.workspace, of_signal(project.folder.name, a_signal()))
    (run,) = eventually(lambda: runs(client, project))
    client.set_flow_run_state(run.id, Crashed(message="Failed to submit flow run"), force=True)
    assert ask_again(project.workspace, time.time() + 5) == []
    assert "scheduled again" in ask_again(project.workspace, time.time() + 70)[0]
    (again,) = runs(client, project)
    assert (again.id, again.state.name) == (run.id, "AwaitingRetry")


def test_a_signal_waits_for_a_server_and_the_deployment_of_its_project_and_begins_one_run(
    client: SyncPrefectClient, undeployed: Project, automating: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, name = undeployed.workspace, undeployed.folder.name
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    for _ in range(2):
        assert not send(workspace, of_signal(name, a_signal()))
    monkeypatch.setenv("PREFECT_API_URL", automating)
    assert events.deliver(workspace) == 0, "nothing would hear it"
    send(workspace, Event(name=events.LOOP_ENDED, project=name, text="a loop ended"))
    assert waiting(workspace) == 1, "what begins no run does not wait"
    redeploy(undeployed)
    assert events.deliver(workspace) == 1
    assert waiting(workspace) == 0
    eventually(lambda: runs(client, undeployed))
    assert events.deliver(workspace) == 0
    assert len(runs(client, undeployed)) == 1


@pytest.mark.parametrize("text", ["0 3 * * MON", *(wide(text) for text in OTHER_SCHEDULES)])
def test_only_a_deployment_that_changed_is_applied(client: SyncPrefectClient, undeployed: Project, text: str) -> None:
    name, path = undeployed.folder.name, undeployed.spec_path
    path.write_text(path.read_text() + f"monitor: {{schedule: '{text}'}}\n")

    def times() -> dict[str, Any]:
        flows = ("train", "retrain", "monitor", "predict")
        return {flow: client.read_deployment_by_name(f"{flow}/{name}").updated for flow in flows}

    redeploy(undeployed)
    first = times()
    redeploy(undeployed)
    assert times() == first
    monitor = client.read_deployment_by_name(f"monitor/{name}")
    client.update_deployment(monitor.id, DeploymentUpdate(description="changed by hand"))
    redeploy(undeployed)
    assert client.read_deployment_by_name(f"monitor/{name}").description == monitor.description
    assert {flow: moment for flow, moment in times().items() if flow != "monitor"} == {
        flow: moment for flow, moment in first.items() if flow != "monitor"
    }


def test_a_scheduled_monitoring_run_without_news_ends_before_it_starts_and_one_that_is_asked_for_waits(
    client: SyncPrefectClient, undeployed: Project
) -> None:
    path, name = undeployed.spec_path, undeployed.folder.name
    path.write_text(path.read_text() + "monitor: {schedule: every 1 minute}\n")
    for file in (path, undeployed.folder / "data.csv"):
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    redeploy(undeployed)
    monitor = client.read_deployment_by_name(f"monitor/{name}")
    asked = client.create_flow_run_from_deployment(monitor.id)
    idle_monitoring.remember(undeployed.state(name), idle_monitoring.stats_of(undeployed))
    lines = eventually(lambda: idle_monitoring.skip(undeployed.workspace), "the scheduler made no run")
    assert set(lines) == {f"{name}: monitoring skipped: nothing new since the last monitoring run"}
    only = DeploymentFilter(id=DeploymentFilterId(any_=[monitor.id]))
    states = {run.id: str(run.state_name) for run in client.read_flow_runs(deployment_filter=only, limit=200)}
    assert states.pop(asked.id) == "Scheduled"
    assert set(states.values()) == {"Skipped", "Scheduled"}, "those of later minutes wait for their turn"


@pytest.mark.wide
def test_a_project_of_another_name_leaves_no_deployment_behind(
    client: SyncPrefectClient, project: Project, make_project: MakeProject
) -> None:
    name, now = project.folder.name, f"tiny-{secrets.token_hex(3)}"
    spec = project.spec_path.read_text()
    project.spec_path.write_text(spec.replace(f"name: {name}", f"name: {now}"))
    twin = project.folder.with_name("zz-copy")
    shutil.copytree(project.folder, twin)
    said: list[str] = []
    deploy(project.workspace, project.workspace.projects(), note=said.append)
    assert f"retrain/{name}: its project is called {now} now; deployment removed" in said
    assert sum(f"the name {now!r} is taken by {project.folder}" in line for line in said) == 1
    found = {one.name: one for one in client.read_deployments(limit=200)}
    assert name not in found
    assert found[now].parameters["project"] == project.folder.name, "the copy did not take its place"
    assert not automations(client, project)


@pytest.mark.wide
def test_a_python_below_a_folder_with_a_space_runs_flows(
    client: SyncPrefectClient, undeployed: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_pool.sys, "executable", "/opt/my work/.venv/bin/python")
    redeploy(undeployed)
    template = client.read_work_pool(pool_of(undeployed.workspace)).base_job_template
    command = template["variables"]["properties"]["command"]["default"]
    assert command_from_string(command) == ["/opt/my work/.venv/bin/python", *launched("prefect.engine")]


def as_kubernetes(patch: pytest.MonkeyPatch) -> None:
    """As an entry `pool` of places.yaml does, without a cluster."""
    patch.setattr(work_pool, "_template", lambda _: ("kubernetes", {}))


def failing(*names: str) -> contextlib.AbstractContextManager[Any]:
    """A server that has no time for these requests."""
    timeout = mock.Mock(side_effect=httpx.ReadTimeout("database is locked"))
    return mock.patch.multiple(SyncPrefectClient, **dict.fromkeys(names, timeout))


def test_a_pool_of_another_type_is_replaced_and_the_runs_that_wait_in_it_are_moved_once(
    client: SyncPrefectClient, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, name, said = pool_of(project.workspace), project.folder.name, []
    deployment = client.read_deployment_by_name(f"train/{name}")
    client.pause_deployment(deployment.id)
    waiting, running = (
        client.create_flow_run_from_deployment(deployment.id, parameters={"project": name}, name=f"{name}-{kind}")
        for kind in ("waits", "runs")
    )
    client.set_flow_run_state(running.id, Running(), force=True)
    with monkeypatch.context() as patch:
        as_kubernetes(patch)
        patch.setattr("flows.prefect.deployments.PATIENCE_S", 0.0)
        with failing("delete_work_pool"), pytest.raises(StoreError, match=r"did not remove it .* no run is lost"):
            deploy(project.workspace, project.workspace.projects(), note=said.append)
        assert client.read_work_pool(pool).type == "process"
        assert client.read_flow_run(waiting.id).state.is_scheduled(), "nothing is done that a failure would lose"
        with failing("create_work_pool"), pytest.raises(StoreError, match="finishes what is left"):
            deploy(project.workspace, project.workspace.projects(), note=said.append)
        with patch.context() as interrupted:
            interrupted.setattr(flow_runs, "_cancel", mock.Mock(side_effect=StoreError("gone")))
            with pytest.raises(StoreError, match="gone"):
                deploy(project.workspace, project.workspace.projects(), note=said.append)
        deploy(project.workspace, project.workspace.projects(), note=said.append)
        assert client.read_work_pool(pool).type == "kubernetes"
        again = client.read_deployment(deployment.id)
        assert (again.work_pool_name, again.work_queue_name, again.paused) == (pool, name, True)
        (moved,) = [run for run in client.read_flow_runs(limit=200) if run.idempotency_key == str(waiting.id)]
        assert (moved.name, moved.work_pool_name, moved.parameters) == (waiting.name, pool, {"project": name})
        assert moved.state.is_scheduled()
    assert f"work pool {pool}: its type is kubernetes now and was process" in said
    assert any(line.startswith(f"{running.name}: it runs on") for line in said)
    assert said.count(f"{waiting.name}: its work pool was replaced: it is scheduled again in the new one") == 1
    assert [client.read_flow_run(run.id).state_name for run in (waiting, running)] == ["Cancelled", "Running"]
    redeploy(project)
    assert client.read_work_pool(pool).type == "process"


@pytest.mark.wide
def test_a_change_of_the_pool_by_one_project_keeps_the_deployments_of_the_others(
    client: SyncPrefectClient, undeployed: Project, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, other = undeployed, make_project(f"tiny-{secrets.token_hex(3)}", "retrain: {on: [new_data]}\n")
    redeploy(other)
    before = client.read_deployment_by_name(f"train/{other.folder.name}")
    waiting = client.create_flow_run_from_deployment(before.id)
    with monkeypatch.context() as patch:
        as_kubernetes(patch)
        deploy(project.workspace, [project], note=lambda text: None)
    after = client.read_deployment(before.id)
    assert (after.work_pool_name, after.work_queue_name) == (pool_of(project.workspace), other.folder.name)
    assert client.read_flow_run(waiting.id).state_name == "Cancelled"
    assert [run.name for run in client.read_flow_runs(limit=200) if run.idempotency_key == str(waiting.id)]
    redeploy(project)


@pytest.mark.wide
def test_a_pool_whose_workers_are_online_keeps_its_type(
    client: SyncPrefectClient, project: Project, automating: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(project.workspace)
    ask(automating, f"work_pools/{pool}/workers/heartbeat", {"name": "ada-loops"})
    with monkeypatch.context() as patch:
        as_kubernetes(patch)
        with pytest.raises(UsageError, match=r"of the type process are online: ada-loops: `loopline down`"):
            redeploy(project)
        assert client.read_work_pool(pool).type == "process"
        ask(automating, f"work_pools/{pool}/workers/ada-loops", None, "DELETE")
        redeploy(project)
        assert client.read_work_pool(pool).type == "kubernetes"
    redeploy(project)


@pytest.mark.wide
def test_what_a_person_switched_off_stays_off_and_what_is_gone_goes(
    client: SyncPrefectClient, project: Project
) -> None:
    name = project.folder.name
    made = automations(client, project)
    usual = {f"{name}: a person asked", f"{name}: the champion moved"}
    assert set(made) == {f"{name}: new data", *usual}
    client.pause_automation(made[f"{name}: new data"].id)
    project.spec_path.write_text(project.spec_path.read_text().replace("[new_data]", "[new_data, decay]"))
    redeploy(project)
    again = automations(client, project)
    assert again[f"{name}: new data"].id == made[f"{name}: new data"].id
    assert not again[f"{name}: new data"].enabled
    assert again[f"{name}: the model decayed"].enabled
    project.spec_path.write_text(project.spec_path.read_text().replace("[new_data, decay]", "[]"))
    redeploy(project)
    assert set(automations(client, project)) == usual
    project.spec_path.unlink()
    redeploy(project)
    assert automations(client, project) == {}


class Hook(BaseHTTPRequestHandler):
    """Takes what a notification posts."""

    heard: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.heard.append((self.headers["Authorization"], body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.heard.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.wide
def test_people_are_told_by_what_the_environment_names(
    client: SyncPrefectClient, undeployed: Project, hook: str
) -> None:
    project = undeployed
    redeploy(project, LOOPLINE_NOTIFY_WEBHOOK=hook, LOOPLINE_NOTIFY_WEBHOOK_TOKEN="s3cret")
    text = "age is outside 0 to 120"
    send(project.workspace, Event(name="loopline.data.broken", project=project.folder.name, text=text))
    ((authorization, body),) = eventually(lambda: Hook.heard)
    assert authorization == "Bearer s3cret"
    assert text in body
    assert project.folder.name in body
    del os.environ["LOOPLINE_NOTIFY_WEBHOOK"]
    redeploy(project)
    assert not [one for one in client.read_automations(limit=200) if "tell when" in one.name]


@contextlib.contextmanager
def a_worker(project: Project) -> Iterator[warm.Started]:
    root = project.workspace.root
    with (root / "worker.log").open("ab") as printing:
        running = warm.start_python(["-m", "tasks.prefect.worker", str(root)], dict(os.environ), ROOT, printing)
    try:
        yield running
        running.terminate()
        running.wait(30)
    finally:
        running.kill()
        running.wait()


@pytest.fixture
def worker(project: Project) -> Iterator[None]:
    with a_worker(project):
        yield


@pytest.mark.usefixtures("worker")
def test_a_run_waits_for_a_persons_word_and_keeps_it(client: SyncPrefectClient, project: Project) -> None:
    project.spec_path.write_text(project.spec_path.read_text().replace("min_new_labels: 5", "ask: true"))
    send(project.workspace, of_signal(project.folder.name, a_signal()))
    (asked,) = eventually(lambda: [run for run in runs(client, project) if run.state and run.state.is_paused()])
    refusal = {"approve": False, "name": "Ada", "comment": "not on a Friday"}
    # Prefect pauses a run before it saves what the run asks, and refuses answers until then.
    eventually(lambda: client.resume_flow_run(asked.id, run_input=refusal).status is SetStateStatus.ACCEPT)
    (ended,) = eventually(lambda: [run for run in runs(client, project) if run.state and run.state.is_final()])
    assert ended.state.name == "Waited"
    assert "refused by Ada: not on a Friday" in ended.state.message
    found = decisions.read(project.state(project.folder.name))
    assert [(made.action, made.by, made.flow_run) for made in found] == [
        ("ask", None, str(asked.id)),
        ("wait", "Ada", str(asked.id)),
    ]


@pytest.mark.wide
def test_two_workers_on_one_machine_run_each_run_once_and_one_at_a_time(
    client: SyncPrefectClient, project: Project
) -> None:
    deployment = client.read_deployment_by_name(f"retrain/{project.folder.name}").id
    with a_worker(project) as one, a_worker(project) as other:
        asked = [
            client.create_flow_run_from_deployment(deployment, parameters={"signal": a_signal(number).model_dump()}).id
            for number in range(NUM_RUNS)
        ]
        eventually(lambda: all(run.state and run.state.is_final() for run in runs(client, project)))
        assert (one.poll(), other.poll()) == (None, None), "both lived on"
    found = sorted(runs(client, project), key=lambda run: run.start_time)
    assert {run.id for run in found} == set(asked)
    assert [(run.state.name, run.run_count) for run in found] == [("Waited", 1)] * NUM_RUNS
    assert all(before.end_time <= after.start_time for before, after in itertools.pairwise(found))
    weighed = [made.flow_run for made in decisions.read(project.state(project.folder.name))]
    assert weighed == [str(run.id) for run in found]
