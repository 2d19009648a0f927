"""What a command line that was killed leaves in Prefect, put right by the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tasks.runtime.loop import RUNNERS
from tasks.runtime.workspace import Workspace
from tests.running import Loopline, flow_runs

KILLED = """
import os, signal, sys
from pathlib import Path
from prefect import flow, tags
from tasks.runtime.loop import begun_here

@flow(name="train", flow_run_name=sys.argv[2])
def train():
    os.kill(os.getpid(), signal.SIGKILL)

with begun_here(Path(sys.argv[1])) as tag, tags(tag):
    train()
"""


def test_a_run_whose_process_was_killed_before_its_loop_was_open_is_told_as_crashed(
    workspace: Workspace, api: str
) -> None:
    state = workspace.state / "projects" / "early"
    state.mkdir(parents=True)
    command = [sys.executable, "-c", KILLED, str(state), "early-1"]
    done = subprocess.run(
        command, env={**os.environ, "PREFECT_API_URL": api}, cwd=Path.cwd(), capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert set(flow_runs(api, "early").values()) == {"RUNNING"}
    (note,) = (state / RUNNERS).iterdir()
    assert json.loads(note.read_text())["pid"] > 0
    loopline = Loopline(workspace.root, {"PREFECT_API_URL": api})
    assert "early-1: Prefect run told as Crashed" in loopline("reap").ok().out
    assert set(flow_runs(api, "early").values()) == {"CRASHED"}
    assert not list((state / RUNNERS).iterdir())
    assert "Crashed" not in loopline("reap").ok().out
