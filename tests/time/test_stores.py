"""A state database that is away, or held up by one writer: a living holder keeps its lease, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from models.errors import StoreError
from tasks.host.leases import is_leased, leased
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tests.postgres import Server, is_installed
from tests.time.acts import PROJECT
from tests.time.machines import Elsewhere, Machine
from tests.time.points import LOOP
from tests.time.test_loop import marks

needs_postgres = [
    pytest.mark.fault,
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.mark.parametrize("stall_s", [2.5, pytest.param(45.0, marks=pytest.mark.soak)])
@needs_postgres[0]
@needs_postgres[1]
@needs_postgres[2]
def test_a_writer_that_is_paused_in_its_transaction_costs_no_holder_its_lease(
    shared: Workspace, elsewhere: Elsewhere, stall_s: float
) -> None:
    """The holder's lease lives shorter than the pause, as 30 s are shorter than 45 s."""
    ttl_s = stall_s / 1.5
    with (
        elsewhere("holder").process("record_step", LOOP, ttl_s=ttl_s, arguments={"mark": "holder"}) as holder,
        elsewhere("writer").process("rest_in_transaction", ttl_s=ttl_s) as writer,
    ):
        holder.wait_for("paused")  # it waits, and its renewals go on
        writer.wait_for("paused")
        writer.stop()
        until = time.monotonic() + stall_s
        while time.monotonic() < until:
            assert is_leased(shared.state, f"loop:{PROJECT}"), "the holder lives"
            time.sleep(0.1)
        assert writer.ended()[-1]
        with pytest.raises(StoreError, match="has it"), leased(shared.state, f"loop:{PROJECT}"):
            pass
        assert holder.ended()[-1] == "done"
    assert marks(shared) == ["holder"]


@needs_postgres[0]
@needs_postgres[1]
@needs_postgres[2]
def test_a_restart_of_postgres_costs_no_holder_its_lease(
    shared: Workspace, elsewhere: Elsewhere, server: Server
) -> None:
    with elsewhere("holder").process("record_step", LOOP, ttl_s=6.0, arguments={"mark": "holder"}) as holder:
        holder.wait_for("paused")
        server.stop()
        time.sleep(0.5)
        server.start()
        assert is_leased(shared.state, f"loop:{PROJECT}")
        assert holder.ended()[-1] == "done"
    assert marks(shared) == ["holder"]


@pytest.mark.parametrize("stall_s", [1.0, pytest.param(45.0, marks=pytest.mark.soak)])
def test_on_sqlite_others_wait_for_a_paused_writer_and_go_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall_s: float
) -> None:
    monkeypatch.delenv(STATE_URL, raising=False)
    here = Machine(workspace.root)
    with (
        here.process("rest_in_transaction") as writer,
        here.process("record_step", arguments={"mark": "other"}) as other,
    ):
        writer.wait_for("paused")
        writer.stop()
        time.sleep(stall_s)
        assert marks(workspace) == []
        assert writer.ended()[-1] == "done"
        assert other.ended()[-1] == "done"
    assert marks(workspace) == ["other"]
