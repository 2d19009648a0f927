"""A wish or an arrival of data outlives Prefect: it stays open until it is decided, and is decided once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from flows.prefect.deployments import deploy
from models.triggers.signal import Decision, Signal
from tasks.host import server_access
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.platform.open_signals import ask_again, undecided
from tasks.prefect.events import of_signal, send
from tasks.prefect.flow_runs import all_runs
from tasks.prefect.prefect_server import PrefectServer
from tests import warm
from tests.conftest import MakeProject
from tests.running import begin_prefect, eventually

pytestmark = pytest.mark.fault

LATER_S = 130.0
"""So much later, by the clock that is handed in, an open signal is asked again."""


@pytest.mark.wide
def test_a_signal_outlives_the_death_of_prefect_while_its_run_starts(
    workspace: Workspace, make_project: MakeProject, empty_prefect: Path
) -> None:
    begin_prefect(workspace.root, empty_prefect)
    workspace.platform.mkdir(exist_ok=True)  # the platform was up: the server has Prefect's triggers
    project = make_project("tiny", "retrain: {on: [new_data], min_new_labels: 5}\n")  # decided, without a loop
    asked = Signal(id="data-1", kind="new_data", at=time.time(), reason="60 rows came")
    state, server = project.state("tiny"), PrefectServer(workspace)
    worker = None
    try:
        with server.lease():
            server.start()
            url = server.wait()
            server_access.use(workspace, url)
            secret = os.environ["PREFECT_API_AUTH_STRING"]
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}):
                deploy(workspace, [project], note=lambda text: None)
            with (workspace.root / "worker.log").open("wb") as printed:
                arguments = ["-m", "tasks.prefect.worker", str(workspace.root)]
                worker = warm.start_python(arguments, dict(os.environ), workspace.root, printed)
            assert send(workspace, of_signal("tiny", asked))
            eventually(lambda: any(run["state_type"] == "PENDING" for run in all_runs(url, {})))
            killed = server.state()
            assert killed is not None
            os.kill(killed["owner"]["pid"], signal.SIGKILL)
            eventually(lambda: server.state() is None)
            assert undecided(workspace, "tiny") == [asked]
            server.start()
            assert server.wait() == url, "at its address of before"
            back = time.time()

            def decided_or_asked_again() -> list[Decision]:
                """As the compactor asks, again and again; by a clock on which two minutes pass in five seconds."""
                now = time.time()
                ask_again(workspace, now + LATER_S * (1 + (now - back) / 5))
                return decisions.read(state)

            eventually(decided_or_asked_again)
            assert undecided(workspace, "tiny") == []
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()
        server.stop()
    assert [made.signal.id for made in decisions.read(state)] == ["data-1"]
