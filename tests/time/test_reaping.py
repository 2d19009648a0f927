"""A reaper that is paused while another machine goes on with the dead loop: it ends nothing of the living one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.host.store_addresses import OPTUNA_STORAGE
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loop, read_loops
from tasks.state.outbox import Outbox
from tests.postgres import is_installed
from tests.time import acts
from tests.time.acts import LOOP, PROJECT
from tests.time.machines import Elsewhere
from tests.time.points import REAP, REAP_TRIALS, REAPED, Point
from tests.time.test_loop import wait_until_free
from tests.wide import wide

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.mark.parametrize(
    "point",
    [wide(REAP), wide(REAP_TRIALS), REAPED],
    ids=["before its lease", "before it fails trials", "before its records"],
)
def test_a_reaper_that_was_paused_ends_no_loop_and_no_trial_that_another_machine_went_on_with(
    shared: Workspace, elsewhere: Elsewhere, point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPTUNA_STORAGE, f"sqlite:///{tmp_path / 'studies.db'}")
    machine = elsewhere("restarted")  # its folder says which study the killed loop had
    with machine.process("die_in_loop") as killed:
        killed.ended()
        wait_until_free(shared, f"loop:{PROJECT}")
    with machine.process("reap_loop", point) as reaper:
        reaper.wait_at(point)
        wait_until_free(shared, f"loop:{PROJECT}")
        acts.finish_loop(shared, amid=reaper.ended)
    state = shared.state / "projects" / PROJECT
    loop, (past,) = last_loop(state), read_loops(state)
    assert loop is not None
    assert (loop.state, past.outcome) == ("finished", "kept"), reaper.lines
    lines = Outbox(state, LOOP).lines().values()
    assert [line["status"] for line in lines if line["op"] == "end"] == ["FINISHED"]
    if point is not REAP:
        assert "has taken it over" in reaper.lines[-1]
