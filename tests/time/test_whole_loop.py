"""A loop that changes machines at each act in another store: it ends as one loop with one version and one champion."""

from __future__ import annotations

import shutil

import pytest

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loop, read_loops
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import aliased
from tasks.state.outbox import LOOP_RUN, delivered
from tasks.state.step_records import StepRecords
from tests.conftest import MakeProject
from tests.postgres import is_installed
from tests.time import acts
from tests.time.acts import PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import END, PROMOTE, REGISTER, TRIAL, UPLOAD
from tests.time.test_loop import wait_until_free

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
SPEC = """\
search: {trials: 1, epochs: 1, space: {model.hidden: {choices: [8, 16]}}}
train: {epochs: 8, lr: 0.03, batch: 64, threads: 1}
model: {net: mlp, arguments: {layers: 1}}
judge: {min_samples: 10, margin: 0.5}
goal: {metric: accuracy, good_enough: 0.1}
"""
ROWS = "x,y\n" + "".join(f"{i / 7},{'yes' if i > 99 else 'no'}\n" for i in range(200))
TAKEN_OVER_AT = {TRIAL: "search", REGISTER: "register", PROMOTE: "promote"}
"""Where a machine is paused, and the step up to which the other one goes on."""


@pytest.mark.wide
def test_a_loop_that_changes_machines_at_each_act_is_one_loop(
    tracked: Workspace, bytes_and_studies: None, elsewhere: Elsewhere, make_project: MakeProject
) -> None:
    project = make_project(PROJECT, SPEC, rows=ROWS)
    machine = elsewhere("paused")
    shutil.copytree(project.folder, machine.home / "projects" / PROJECT)
    for point, step in TAKEN_OVER_AT.items():
        with machine.process("run_loop", point, is_apart=False) as paused:
            paused.wait_at(point)
            wait_until_free(tracked, f"loop:{PROJECT}")
            with pytest.raises(StoreError, match="ended after"):
                acts.run_loop(tracked, until=step)
            assert any(f"loop:{PROJECT}: " in line and "has taken it over" in line for line in paused.ended()), (
                paused.lines
            )
    with machine.process("run_loop", END, is_apart=False) as paused:
        paused.wait_at(END)
        wait_until_free(tracked, f"loop:{PROJECT}")
        acts.run_loop(tracked)
        assert any("has taken it over" in line for line in paused.ended()), paused.lines
    assert_one_loop(tracked)


def test_a_checkpoint_of_a_paused_machine_hides_none_of_the_machine_that_took_over(
    shared: Workspace, bytes_and_studies: None, elsewhere: Elsewhere, make_project: MakeProject
) -> None:
    project = make_project(PROJECT, SPEC, rows=ROWS)
    machine = elsewhere("paused")
    shutil.copytree(project.folder, machine.home / "projects" / PROJECT)
    with machine.process("upload_checkpoint", UPLOAD, arguments={"mark": "old"}) as paused:
        paused.wait_at(UPLOAD)
        wait_until_free(shared, f"loop:{PROJECT}")
        acts.upload_checkpoint(shared, "new")
        assert "has taken it over" in paused.ended()[-1], paused.lines
    assert acts.fetch_checkpoint(shared) == "new"


def assert_one_loop(workspace: Workspace) -> None:
    """One loop, with one version, one champion, and one recorded run of each name; each step is recorded once.

    A machine that is paused while it makes a run in MLflow leaves one that no record names.
    """
    state = workspace.state / "projects" / PROJECT
    records = StepRecords(state, workspace.root)
    assert {step: len(list(records.newest(step))) for step in acts.STEPS} == dict.fromkeys(acts.STEPS, 1)
    loop, (past,) = last_loop(state), read_loops(state)
    assert loop is not None
    assert (loop.state, past.loop_id) == ("finished", loop.loop_id)
    store = client()
    (version,) = store.search_model_versions(f"name = '{PROJECT}'")
    champion = aliased(PROJECT)
    assert champion is not None
    assert champion.number == str(version.version)
    assert records.recent("register")
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    recorded = delivered(state, loop.loop_id).runs
    names = {run.info.run_id: run.info.run_name for run in store.search_runs(experiments)}
    assert [names[recorded[run]] for run in (LOOP_RUN, "trial-0")] == [loop.loop_id, f"{loop.loop_id}/trial-0"]
    assert version.run_id == recorded[LOOP_RUN]
