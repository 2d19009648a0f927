"""A loop's holder is paused at each act under its lease: another machine takes over, and only that one records."""

from __future__ import annotations

import os
import shutil
import socket
import time
from typing import NamedTuple

import pytest

from tasks.host.leases import is_leased
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.history import last_loop, read_loops
from tasks.state.outbox import Outbox
from tasks.state.step_records import StepRecords
from tests.conftest import MakeProject
from tests.postgres import is_installed
from tests.stored_events import stored_events
from tests.time import acts
from tests.time.acts import PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import DECIDE, ENDED, LINE, LOOP, RECORD, STEP, WEIGH, Point

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


def wait_until_free(workspace: Workspace, lease: str) -> None:
    """Until a lease has run out, which its holder does not renew."""
    deadline = time.monotonic() + 30
    while is_leased(workspace.state, lease):
        assert time.monotonic() < deadline, f"{lease} does not run out"
        time.sleep(0.05)


def marks(workspace: Workspace) -> list[str]:
    """Who wrote what stands in the database."""
    state = workspace.state / "projects" / PROJECT
    loop = last_loop(state)
    records = StepRecords(state, workspace.root).newest("train")
    steps = [loop.step] if loop and loop.step else []
    ends = [past.reason for past in read_loops(state)]
    lines = [line["status"] for line in Outbox(state, acts.LOOP).lines().values()]
    return [*steps, *ends, *lines, *(record.digest for record in records)]


@pytest.mark.parametrize("point", [WEIGH, DECIDE], ids=["before it reads the past", "before it records"])
def test_a_flow_run_that_goes_on_on_two_machines_decides_once(
    shared: Workspace, elsewhere: Elsewhere, make_project: MakeProject, point: Point
) -> None:
    machine, project = elsewhere("paused"), make_project(PROJECT)
    shutil.copytree(project.folder, machine.home / "projects" / PROJECT)
    with machine.process("decide", point, arguments={"flow_run": "r1"}) as paused:
        paused.wait_at(point)
        acts.decide(shared, "r1")
        note = paused.ended()[-2]
    (decision,) = decisions.read(project.state(PROJECT))
    assert (decision.action, note) == ("retrain", f"note: {decision.loop_id}")
    assert len(stored_events(shared)) == 1


class Case(NamedTuple):
    """A point, and the act during which the process comes there."""

    point: Point
    act: str


CASES = [
    Case(STEP, "begin_step"),
    Case(LOOP, "save_state"),
    Case(RECORD, "record_step"),
    Case(ENDED, "end_loop"),
    Case(LINE, "write_line"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.point.name)
def test_a_holder_that_was_paused_records_nothing_over_the_one_that_took_over(
    shared: Workspace, elsewhere: Elsewhere, case: Case
) -> None:
    with elsewhere("paused").process(case.act, case.point, arguments={"mark": "old"}) as paused:
        paused.wait_at(case.point)
        wait_until_free(shared, f"loop:{PROJECT}")
        getattr(acts, case.act)(shared, mark="new")
        last = paused.ended()[-1]
    assert marks(shared) == ["new"]
    assert last.startswith(f"refused: LeaseLostError: loop:{PROJECT}: {socket.gethostname()}, pid {os.getpid()}"), last
