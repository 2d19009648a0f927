"""What the platform says before it starts anything: refusals, a disk nearly full, what a broken service printed."""

import os
import shutil
from types import SimpleNamespace

import pytest

from models.errors import UsageError
from models.files import write_json, write_text
from tasks.host import processes
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord
from tasks.platform import platform, services
from tasks.platform.services import ServiceState


def test_a_disk_nearly_full_is_told_before_it_is_full(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=50 << 30))
    assert platform.low_disk(workspace) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=500 << 20))
    said = platform.low_disk(workspace)
    assert said is not None
    assert "only 0.5 GB free" in said


def test_other_ports_than_those_it_is_up_with_are_refused(workspace: Workspace) -> None:
    write_json(workspace.platform / "supervisor.json", {"process": processes.identity(), "socket": "none"})
    write_json(workspace.platform / "ports.json", {"requested": {}, "ports": {"mlflow": 5000}})
    with pytest.raises(UsageError, match=r"up with mlflow=5000: `loopline down` first"):
        platform.start(workspace, {"mlflow": 5001})
    with pytest.raises(UsageError, match="up with mlflow=5000"):
        platform._refuse_other_ports(workspace, {"mlflow": 0})  # any but the usual one


def test_any_port_but_the_usual_one_is_what_it_is_up_with_after_the_first_time(workspace: Workspace) -> None:
    write_json(workspace.platform / "ports.json", {"requested": {}, "ports": {"mlflow": 5017, "prefect": 4200}})
    platform._refuse_other_ports(workspace, {"mlflow": 0, "prefect": 4200})


def test_what_a_broken_service_printed_last_is_told_with_its_log(workspace: Workspace) -> None:
    log = workspace.platform / "logs" / "mlflow.log"
    write_text(log, "starting\nImportError: no such thing\n")
    said = platform._trouble(workspace, ServiceState("mlflow", "failed"))
    assert "mlflow is failed" in said
    assert "ImportError: no such thing" in said
    assert str(log) in said


def test_where_nothing_runs_there_is_nothing_to_end(workspace: Workspace) -> None:
    assert platform.flow_runs(workspace) == []
    platform.stop_worker(workspace)
    assert platform.stop(workspace) is False


def test_who_has_the_pid_of_a_supervisord_of_another_host_is_left_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at once nor after the time that one is given which answers and does not end."""
    monkeypatch.setattr(platform.os, "kill", lambda pid, number: pytest.fail(f"{pid} was sent {number}"))
    monkeypatch.setattr(platform, "DOWN_TIMEOUT_S", 0.01)
    elsewhere = {"host": "macbook.office.lan", "pid": os.getpid(), "started": "deadbeef/1"}
    note = {"process": elsewhere, "socket": "none"}
    write_json(workspace.platform / "supervisor.json", note)
    assert platform.stop(workspace) is False
    monkeypatch.setattr(services, "_processes", lambda _: {})
    platform._shut_down(note)


def test_a_look_alone_is_no_loop_that_down_would_ask_for(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "flow_runs", lambda _: ["penguins-1", "flow run 7"])
    running = [LoopRecord("penguins-1", "running"), LoopRecord("by-hand-2", "running")]
    monkeypatch.setattr(platform, "_running_loops", lambda _: running)
    assert platform.loops(workspace) == ["penguins-1"]


def test_an_overview_page_that_other_machines_would_reach_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPLINE_OVERVIEW_HOST", "0.0.0.0")
    with pytest.raises(UsageError, match=r"LOOPLINE_OVERVIEW_HOST: got 0\.0\.0\.0"):
        platform.start(workspace, {})
