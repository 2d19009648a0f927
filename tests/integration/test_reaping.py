"""What a command line that was killed leaves in Prefect, put right by the next one."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
from sqlalchemy import select

from tasks.host import database
from tasks.host.tables import runners
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask, close_task_runs, ended_with_open_tasks
from tests.conftest import Processes
from tests.running import Loopline, flow_runs

KILLED = """
import os, signal, sys, time
from pathlib import Path
from prefect import flow, tags, task
from prefect.client.orchestration import get_client
from prefect.runtime import task_run
from tasks.loop.runners import running_flow

@task(name="step", persist_result=False)
def step():
    with get_client(sync_client=True) as client:
        while True:  # Prefect hears of its tasks a moment later
            try:
                if client.read_task_run(task_run.id).state.is_running():
                    break
            except Exception:
                pass
            time.sleep(.1)
    os.kill(os.getpid(), signal.SIGKILL)

@flow(name="train", flow_run_name=sys.argv[2])
def train():
    step()

with running_flow(Path(sys.argv[1])) as tag, tags(tag):
    train()
"""


def tasks_of(api: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(api, "task_runs/filter", {"flow_runs": {"name": {"like_": "early"}}})
    return found


def processes_of_runners(workspace: Workspace) -> list[dict[str, Any]]:
    with database.reading(workspace.state) as connection:
        return list(connection.scalars(select(runners.c.process)))


def test_a_run_whose_process_was_killed_before_its_loop_was_open_is_told_as_crashed(
    workspace: Workspace, api: str, at_once: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", api)
    state = workspace.state / "projects" / "early"
    state.mkdir(parents=True)
    (done,) = at_once(f"import sys; sys.argv[1:] = {[str(state), 'early-1']!r}\n{KILLED}")
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert set(flow_runs(api, "early").values()) == {"RUNNING"}
    assert [task["state_type"] for task in tasks_of(api)] == ["RUNNING"]
    assert [process["pid"] > 0 for process in processes_of_runners(workspace)] == [True]
    loopline = Loopline(workspace.root, {"PREFECT_API_URL": api})
    assert "early-1: marked as Crashed in Prefect" in loopline("reap").ok().out
    assert set(flow_runs(api, "early").values()) == {"CRASHED"}
    assert [task["state_type"] for task in tasks_of(api)] == ["CRASHED"]
    assert processes_of_runners(workspace) == []
    assert "Crashed" not in loopline("reap").ok().out


def test_tasks_that_prefect_lists_as_open_in_a_flow_run_that_ended_are_closed(workspace: Workspace, api: str) -> None:
    """A worker's run that was killed and told as crashed, and one that came through the second time."""
    flow = ask(api, "flows/", {"name": "ended"})["id"]
    made, runs = {}, set()

    def open_ended(pool: str | None, later_s: float) -> list[str]:
        """Of the runs of this test: others share the server."""
        return [run for run in ended_with_open_tasks(api, pool, time.time() + later_s) if run in runs]

    for state in ("CRASHED", "COMPLETED", "RUNNING"):
        run = ask(api, "flow_runs/", {"flow_id": flow, "state": {"type": "RUNNING"}})["id"]
        task = {"flow_run_id": run, "task_key": "step", "dynamic_key": "0", "state": {"type": "RUNNING"}}
        made[state] = ask(api, "task_runs/", task)["id"]
        runs.add(run)
        if state != "RUNNING":
            ask(api, f"flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})
    assert open_ended(None, 0) == [], "their ends may be on their way"
    late = open_ended(None, 90)
    assert len(close_task_runs(api, late)) == 2
    found = {name: ask(api, f"task_runs/{task}", None, "GET")["state_type"] for name, task in made.items()}
    assert found == {"CRASHED": "CRASHED", "COMPLETED": "CRASHED", "RUNNING": "RUNNING"}
    assert open_ended(None, 90) == []
    assert open_ended("other", 90) == []
