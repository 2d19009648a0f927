"""The table of services, and how they are told while nothing runs."""

import importlib.util
import json
import os
from pathlib import Path

import pytest

from models.files import write_json
from tasks.host import processes
from tasks.host.server_access import elsewhere
from tasks.host.workspace import Workspace
from tasks.platform.services import SERVICES, _exits, _state, projects_to_serve, services_of, supervisor, wanted

LOG = """\
2026-11-21 18:15:00,093 INFO spawned: 'mlflow' with pid 4112
2026-11-21 18:20:00,000 WARN exited: mlflow (terminated by SIGKILL; not expected)
2026-11-21 18:21:00,000 WARN exited: mlflow (exit status 1; not expected)
2026-11-21 18:22:00,000 INFO stopped: prefect (exit status 0)
"""


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_each_service_is_a_module_that_is_there(service) -> None:  # type: ignore[no-untyped-def]
    assert importlib.util.find_spec(service.module)
    assert (service.health is None) == (service.port is None or service.is_on_demand)
    command = service.command(Workspace(Path("/w")), 4321)
    assert "/w" in command
    assert not any("{" in word for word in command)


def test_names_and_ports_are_each_of_one_service() -> None:
    assert len({service.name for service in SERVICES}) == len(SERVICES)
    numbers = [service.port for service in SERVICES if service.port]
    assert len(set(numbers)) == len(numbers)


def test_a_server_of_models_is_wanted_where_a_spec_asks_for_it(workspace: Workspace, make_project) -> None:  # type: ignore[no-untyped-def]
    assert "serve" not in {service.name for service in wanted(workspace)}
    make_project("plain")
    make_project("asks", "serve:\n  up: true\n")
    (workspace.root / "projects" / "broken").mkdir()
    (workspace.root / "projects" / "broken" / "project.yaml").write_text("serve: {")
    assert projects_to_serve(workspace) == ["asks"]
    assert {service.name for service in wanted(workspace)} == {service.name for service in SERVICES}


def test_while_nothing_runs_every_service_is_stopped(workspace: Workspace) -> None:
    states = services_of(workspace)
    assert {state.name for state in states} == {service.name for service in SERVICES if not service.is_optional}
    assert {state.state for state in states} == {"stopped"}
    assert all(state.url is None for state in states)
    assert json.dumps([vars(state) for state in states])


def test_a_server_elsewhere_is_told_with_its_page(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    told = {state.name: state for state in services_of(workspace)}
    assert (told["prefect"].state, told["prefect"].url) == ("elsewhere", "http://prefect.example:4200")
    assert (told["mlflow"].state, told["mlflow"].url) == ("elsewhere", "https://mlflow.example")


def test_the_workspaces_own_server_is_not_elsewhere(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.state / "prefect").mkdir(parents=True)
    (workspace.state / "prefect" / "port").write_text("4207")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4207/api")
    assert elsewhere(workspace) == {}


def test_a_supervisord_that_is_gone_counts_as_none(workspace: Workspace) -> None:
    note = {"process": {**processes.identity(), "started": "another time"}, "socket": "gone"}
    write_json(workspace.platform / "supervisor.json", note)
    assert supervisor(workspace) is None


def test_one_that_lives_but_does_not_answer_is_told_so(workspace: Workspace, tmp_path: Path) -> None:
    note = {"process": processes.identity(), "socket": str(tmp_path / "none.sock")}
    write_json(workspace.platform / "supervisor.json", note)
    assert {state.state for state in services_of(workspace)} == {"unknown"}


def test_one_noted_under_another_host_that_does_not_answer_counts_as_none(workspace: Workspace, tmp_path: Path) -> None:
    elsewhere = {"host": "macbook.office.lan", "pid": os.getpid(), "started": "deadbeef/1"}
    write_json(workspace.platform / "supervisor.json", {"process": elsewhere, "socket": str(tmp_path / "none.sock")})
    assert supervisor(workspace) is None
    assert {state.state for state in services_of(workspace)} == {"stopped"}


def test_crashes_are_counted_from_supervisords_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    exits = _exits(tmp_path / "log")
    assert exits == {"mlflow": ["terminated by SIGKILL", "exit status 1"]}
    told = {"statename": "RUNNING", "pid": 7, "start": 100, "spawnerr": ""}
    state = _state("mlflow", told, "http://127.0.0.1:5000", exits["mlflow"])
    assert (state.state, state.restarts, state.detail) == (
        "running",
        2,
        "started again after: exit status 1",
    )


@pytest.mark.parametrize(
    ("said", "told"), [("BACKOFF", "backing off"), ("FATAL", "failed"), ("STOPPED", "stopped"), ("NEW", "unknown")]
)
def test_one_that_is_not_up_has_no_address(said: str, told: str) -> None:
    state = _state("mlflow", {"statename": said, "pid": 0, "start": 0, "spawnerr": "why"}, "http://127.0.0.1:5000", [])
    assert (state.state, state.url, state.pid, state.since, state.detail) == (told, None, None, None, "why")
