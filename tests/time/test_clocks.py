"""Machines whose clocks are five minutes apart: the database's time decides about leases, its numbers about order.

docs/how-to/platform.md lists what takes the machine's time.
"""

from __future__ import annotations

import time

import pytest

from models.errors import StoreError
from models.triggers.signal import PastLoop
from tasks.host.leases import is_leased, leased
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, last_loop, read_loops, record_loop, save_loop
from tests.postgres import is_installed
from tests.stored_events import stored_events
from tests.time import acts
from tests.time.acts import PROJECT
from tests.time.machines import SHORT_TTL_S, Elsewhere
from tests.time.points import ENDED
from tests.time.test_loop import wait_until_free
from tests.wide import wide

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.mark.parametrize("clock_s", [300.0, wide(-300.0)])
def test_a_holder_with_a_wrong_clock_keeps_its_lease_while_it_lives_and_no_longer(
    shared: Workspace, elsewhere: Elsewhere, clock_s: float
) -> None:
    machine, lease = elsewhere("wrong", clock_s=clock_s), f"loop:{PROJECT}"
    with machine.process("end_loop", ENDED, arguments={"mark": "old"}) as holder:
        holder.wait_for("paused at history.record_loop")
        began = last_loop(shared.state / "projects" / PROJECT)
        assert began is not None
        until = time.monotonic() + 2 * SHORT_TTL_S
        while time.monotonic() < until:
            assert is_leased(shared.state, lease)
            time.sleep(0.1)
        with pytest.raises(StoreError, match="has it"), leased(shared.state, lease):
            pytest.fail("two holders")
        holder.stop()
        wait_until_free(shared, lease)
        acts.end_loop(shared, "new")
        assert "has taken it over" in holder.ended()[-1]
    assert [past.reason for past in read_loops(shared.state / "projects" / PROJECT)] == ["new"]


@pytest.mark.wide
def test_a_signal_has_the_databases_time(shared: Workspace, elsewhere: Elsewhere) -> None:
    """The policy compares it with the begin and the end of loops of other machines."""
    with elsewhere("wrong", clock_s=-300.0).process("ask_for_loop") as person:
        assert person.ended()[-1] == "done", person.lines
    (event,) = stored_events(shared)
    assert abs(event["payload"]["signal"]["at"] - time.time()) < 60


def test_loops_are_in_the_order_in_which_they_were_written(shared: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    state, now = shared.state / "projects" / PROJECT, time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: now() + 300.0)
        acts.end_loop(shared, "first")
    save_loop(state, LoopRecord("p-2", "finished"))
    record_loop(state, PastLoop(loop_id="p-2", began=3.0, ended=4.0, outcome="kept", reason="second"))
    assert [past.reason for past in read_loops(state)] == ["first", "second"]
    loop = last_loop(state)
    assert loop is not None
    assert loop.loop_id == "p-2"
