"""The suite of launchers: a launcher of processes of this machine passes it, and a wrong one is told why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.project_spec.blocks import Train
from models.project_spec.conformance import Outcome, outcomes
from tasks.ranks.launcher_suite import launcher_claims
from tasks.ranks.own_place import OwnPlace
from tasks.ranks.places import find_place

ENGINE = """
import shlex
import subprocess

PROCESSES = {}


def submit(job, settings):
    command = shlex.split(job["command"]("1", "localhost:0", job["name"]))
    with (job["folder"] / "log.txt").open("w") as log:
        PROCESSES[job["name"]] = subprocess.Popen(command, stdout=log, stderr=log)
    return f"started {job['name']}"


def state(name, settings):
    return "running" if name in PROCESSES and PROCESSES[name].poll() is None else "ended"


def cancel(name, settings):
    if state(name, settings) == "running":
        PROCESSES[name].terminate()
        PROCESSES[name].wait()


def always_running(name, settings):
    return "running"


def refusing(name, settings):
    raise ValueError(f"there is no job {name}")


LAUNCHER = {"submit": submit, "state": state, "cancel": cancel}
WRONG_LAUNCHER = {"submit": submit, "state": always_running, "cancel": refusing}
"""


def outcomes_of(workspace: Any, row: str, num_claims: int | None = None) -> list[Outcome]:
    """What becomes of the first claims on a row of the engine."""
    (workspace.root / "engine.py").write_text(ENGINE)
    (workspace.root / "places.yaml").write_text(f'lab: {{engine: "./engine.py:{row}"}}\n')
    place = find_place(workspace, Train(on="lab"))
    assert isinstance(place, OwnPlace)
    claims = [*launcher_claims(place, Path(workspace.root, "jobs"), "0123456789ab")]
    return [*outcomes(claims[:num_claims])]


def test_a_wrong_launcher_is_told_before_anything_trains(workspace) -> None:
    assert [outcome.error for outcome in outcomes_of(workspace, "LAUNCHER", 2)] == ["", ""]
    state, cancel = outcomes_of(workspace, "WRONG_LAUNCHER", 2)
    assert state.error == "its state is running, expected ended"
    assert "the engine refuses it: there is no job loopline-" in cancel.error


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_processes_of_this_machine_pass_the_suite(workspace) -> None:
    assert [outcome for outcome in outcomes_of(workspace, "LAUNCHER") if outcome.error] == []
