"""A loop's log that two machines deliver: one records what MLflow has, and MLflow has each line once."""

from __future__ import annotations

import pytest

from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tasks.mlflow.client import client
from tasks.state.outbox import LOOP_RUN, Outbox, delivered, waiting_loops
from tests.postgres import is_installed
from tests.time import acts
from tests.time.acts import LOOP, PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import DELIVERED
from tests.time.test_loop import wait_until_free

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


def test_a_paused_delivery_records_nothing_once_another_machine_has_delivered(
    tracked: Workspace, elsewhere: Elsewhere
) -> None:
    state = tracked.state / "projects" / PROJECT
    save_loop(state, LoopRecord(LOOP, "killed"))
    outbox = Outbox(state, LOOP)
    outbox.start_run(LOOP_RUN, LOOP, {})
    for step in range(1, 6):
        outbox.metrics(LOOP_RUN, {"loss": 1 / step}, step)
    with elsewhere("paused").process("deliver_log", DELIVERED) as paused:
        paused.wait_at(DELIVERED)
        wait_until_free(tracked, f"mlflow-runs:{PROJECT}")
        outbox.end_run(LOOP_RUN, "KILLED")
        acts.deliver_log(tracked)
        recorded = delivered(state, LOOP)
        refusal = paused.ended()[-1]
    assert refusal.startswith(f"refused: LeaseLostError: mlflow-runs:{PROJECT}: "), refusal
    assert delivered(state, LOOP) == recorded
    assert waiting_loops(tracked.state) == {}
    store = client()
    experiment = store.get_experiment_by_name(PROJECT)
    assert experiment is not None
    (run,) = store.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (recorded.runs[LOOP_RUN], "KILLED")
    assert [point.step for point in store.get_metric_history(run.info.run_id, "curves/loss")] == list(range(1, 6))
