"""The platform of an empty workspace: until it is healthy, and from an event to the flow run that it begins.

Beside it, in the same run, the same servers without us: `tests/bench/bare_platform.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from models.triggers.signal import Signal
from tasks.host import server_access
from tasks.host.workspace import Workspace
from tasks.prefect.events import of_signal, send
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer
from tests.bench.loop import LOOPLINE, OURS, QUIET, ROOT

SPEC = "data: {source: data.csv, target: y}\nmonitor: {schedule: null}\nretrain: {on: [drift], ask: true}\n"
EVENTS = 3
PATIENCE_S = 180.0


@dataclass(frozen=True)
class Bare:
    """Seconds of wall clock without us; `event_default_s` is with the worker's own interval of asking."""

    first_up_s: float
    up_s: float
    event_s: float
    event_default_s: float


@dataclass(frozen=True)
class Platform:
    """Seconds of wall clock: the first `up` of all, one with every store there, `down`, event to running flow."""

    first_up_s: float
    up_s: float
    down_s: float
    event_s: float
    bare: Bare


def measured(place: Path) -> Platform:
    """Bring a platform up twice, send events, and take it down."""
    home = place / "platform"
    (home / "projects" / "tiny").mkdir(parents=True)
    (home / "projects" / "tiny" / "project.yaml").write_text(SPEC)
    (home / "projects" / "tiny" / "data.csv").write_text("x,y\n1,2\n")
    first = _timed(home, "up")
    try:
        os.environ.update(server_access.credentials(Workspace(home), {}))
        event = statistics.median(_event_s(Workspace(home), number) for number in range(EVENTS))
        down = _timed(home, "down", "--force")
        again = _timed(home, "up")
    finally:
        _timed(home, "down", "--force")
    return Platform(first, again, down, event, _bare(place / "bare"))


def _bare(folder: Path) -> Bare:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.bench.bare_platform", str(folder)]
    done = subprocess.run(command, env=_environ(), cwd=ROOT, check=True, capture_output=True, text=True)
    return Bare(**json.loads(done.stdout.splitlines()[-1]))


def _environ() -> dict[str, str]:
    return {**{key: value for key, value in os.environ.items() if not key.startswith(OURS)}, **QUIET}


def _timed(home: Path, *arguments: str) -> float:
    environ = {**_environ(), "LOOPLINE_HOME": str(home)}
    began = time.monotonic()
    subprocess.run([LOOPLINE, *arguments], env=environ, check=True, capture_output=True)
    return time.monotonic() - began


def _event_s(workspace: Workspace, number: int) -> float:
    """From an event to the start of the run that weighs it; no loop follows, for a person would be asked first."""
    sent = time.time()
    send(workspace, of_signal("tiny", Signal(id=f"bench-{number}", kind="drift", at=sent, reason="bench")))
    api = f"{PrefectServer(workspace).url()}"
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        runs = ask(api, "flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})
        began = datetime.fromisoformat(runs[0]["start_time"]).timestamp() if runs and runs[0]["start_time"] else 0.0
        if began > sent:
            time.sleep(11.0)  # events within ten seconds are one storm, and begin one run
            return began - sent
        time.sleep(0.1)
    raise TimeoutError(f"no run began within {PATIENCE_S:g} s of the event")
