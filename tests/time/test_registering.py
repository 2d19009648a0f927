"""A writer that is paused while it writes to MLflow: no row names what it leaves there, and a tag marks it."""

from __future__ import annotations

import pytest

from models.serving.registry import UNRECORDED
from tasks.host.workspace import Workspace
from tasks.mlflow.client import client
from tasks.state.outbox import LOOP_RUN, Outbox, delivered
from tasks.state.versions import versions_of
from tests.postgres import is_installed
from tests.time import acts
from tests.time.acts import LOOP, PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import CREATE, DELIVER, JUDGE, Point
from tests.time.test_loop import wait_until_free

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.mark.parametrize(
    ("point", "left"), [(CREATE, ["2"]), (JUDGE, [])], ids=["before MLflow", "between MLflow and the row"]
)
def test_a_version_of_a_paused_writer_is_named_by_no_row_and_tagged(
    tracked: Workspace, elsewhere: Elsewhere, point: Point, left: list[str]
) -> None:
    store = client()
    run = store.create_run(store.create_experiment(PROJECT)).info.run_id
    with elsewhere("paused").process("register_version", point, arguments={"mark": "old", "run": run}) as paused:
        paused.wait_at(point)
        wait_until_free(tracked, f"loop:{PROJECT}")
        acts.register_version(tracked, "new", run)
        assert "has taken it over" in paused.ended()[-1], paused.lines
    (version,) = versions_of(tracked.state, PROJECT)
    assert (version.number, version.tags["mark"]) == ("1", "new")
    found = {str(found.version): found for found in store.search_model_versions(f"name = '{PROJECT}'")}
    assert sorted(number for number, version in found.items() if UNRECORDED in version.tags) == left
    assert sorted(found) == ["1", *left]
    assert str(store.get_model_version_by_alias(PROJECT, "challenger").version) == "1"


def test_a_run_of_a_paused_writer_is_named_by_no_row_and_tagged(tracked: Workspace, elsewhere: Elsewhere) -> None:
    state, store = tracked.state / "projects" / PROJECT, client()
    state.mkdir(parents=True)
    outbox = Outbox(state, LOOP)
    outbox.start_run(LOOP_RUN, LOOP, {})
    with elsewhere("paused").process("deliver_log", DELIVER) as paused:
        paused.wait_at(DELIVER)
        wait_until_free(tracked, f"mlflow-runs:{PROJECT}")
        outbox.metrics(LOOP_RUN, {"loss": 0.5}, 1)
        acts.deliver_log(tracked)
        recorded = delivered(state, LOOP)
        assert "has taken it over" in paused.ended()[-1], paused.lines
    assert delivered(state, LOOP) == recorded
    experiment = store.get_experiment_by_name(PROJECT)
    assert experiment is not None
    runs = {run.info.run_id: run.data for run in store.search_runs([experiment.experiment_id])}
    (kept,) = (run_id for run_id, data in runs.items() if UNRECORDED not in data.tags)
    assert (len(runs), recorded.runs, runs[kept].metrics) == (2, {LOOP_RUN: kept}, {"curves/loss": 0.5})
