"""Processes are known by their mark, and ended by it."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import psutil
import pytest

from models.files import write_json, write_text
from tasks.host import ports
from tasks.host.processes import SERVICE
from tasks.host.workspace import CLONE, Workspace
from tasks.platform.service_main import PID_FILE, end, marked
from tests.running import eventually

SLEEP = "import time; print(flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def child(workspace: Workspace, name: str, code: str = SLEEP) -> subprocess.Popen[bytes]:
    mark = json.dumps({"workspace": str(workspace.root), "service": name})
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, SERVICE: mark}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def two(workspace: Workspace) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of two services; ended whatever happens."""
    made = [child(workspace, "mlflow"), child(workspace, "worker", STUBBORN)]
    yield made
    for process in made:
        process.kill()
        process.communicate()


def test_a_mark_tells_workspace_and_service(workspace: Workspace, two: list[subprocess.Popen[bytes]]) -> None:
    mlflow, worker = two
    assert {one.pid for one in marked(workspace)} == {mlflow.pid, worker.pid}
    assert [one.pid for one in marked(workspace, "worker")] == [worker.pid]
    assert list(marked(Workspace(workspace.root / "another"))) == []


def test_ending_takes_those_that_do_not_listen_too(workspace: Workspace, two: list[subprocess.Popen[bytes]]) -> None:
    ended = end(list(marked(workspace)), grace_s=0.5)
    assert set(ended) == {one.pid for one in two}
    assert not any(psutil.pid_exists(one.pid) for one in two)
    assert list(marked(workspace)) == []


def test_a_service_on_demand_starts_at_the_first_connection_which_waits(workspace: Workspace) -> None:
    port = ports.any_free([])
    write_json(workspace.platform / "ports.json", {"requested": {}, "ports": {"optuna": port}})
    write_text(workspace.platform / PID_FILE, str(os.getpid()))
    command = [sys.executable, "-m", "tasks.platform.service_main", str(workspace.root), "optuna"]
    process = subprocess.Popen(command, cwd=CLONE)
    try:
        waiting = psutil.Process(process.pid)
        eventually(lambda: "-IS" in waiting.cmdline())
        assert waiting.memory_info().rss < 15e6
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)
        refused.value.close()
        assert "-IS" not in waiting.cmdline()
    finally:
        process.kill()
        process.wait()
