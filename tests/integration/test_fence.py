"""Two carriers of one loop: at each step, the one that has lost its lease computes, and nothing of it is recorded."""

from __future__ import annotations

import pytest

from models.errors import LeaseLostError
from tasks.host import database
from tasks.host.tables import leases
from tasks.host.workspace import Workspace
from tasks.loop.lifecycle import open_loop
from tasks.mlflow.registry_reader import aliased, numbered
from tasks.state.step_records import StepRecords
from tests.conftest import MakeProject
from tests.environment import QUIET
from tests.loop_steps import STEPS

pytestmark = pytest.mark.soak  # each step twice, 15 CPU-s; every day `tests/unit/tasks/loop/test_loop.py` loses it once
SPEC = """\
search: {trials: 0}
train: {epochs: 2, batch: 64, threads: 1}
model: {net: linear}
judge: {min_samples: 10, margin: 0.5}
goal: {metric: accuracy, good_enough: 0.1}
"""
ROWS = "x,y\n" + "".join(f"{i / 7},{'yes' if i > 99 else 'no'}\n" for i in range(200))


def move_epoch(workspace: Workspace, name: str, by: int) -> None:
    """Do as another machine that takes the lease; with -1, undo it."""
    with database.writing(workspace.state) as connection:
        connection.execute(leases.update().where(leases.c.name == name).values(epoch=leases.c.epoch + by))


def test_at_each_step_the_older_carrier_is_refused(
    tracked: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    project = make_project("twice", SPEC, rows=ROWS)
    with open_loop(project) as loop:
        records = StepRecords(loop.state, tracked.root)
        for name, act in STEPS.items():
            move_epoch(tracked, "loop:twice", 1)
            with pytest.raises(LeaseLostError, match=r"loop:twice: .* has taken it over"):
                act(loop)
            assert records.latest(name) is None
            assert numbered("twice", "1") is None or name in ("promote", "card")
            assert aliased("twice") is None or name == "card"
            move_epoch(tracked, "loop:twice", -1)
            act(loop)
            assert records.latest(name) is not None
        assert aliased("twice") is not None
