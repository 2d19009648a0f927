"""Two may compute, one can speak: whoever took a lease last."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import literal

from models.errors import LeaseLostError, StoreError
from tasks.host import database, leases, processes
from tasks.host.leases import Lease, is_leased, leased
from tasks.host.workspace import Workspace

NAME = "loop:tiny"
ELSEWHERE = {"host": "macbook.office.lan", "pid": 4242, "started": "deadbeef/1"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The database's clock; the database counts as shared, and nobody renews by himself."""
    at = [1e9]
    monkeypatch.setattr(database, "is_shared", lambda: True)
    monkeypatch.setattr(database, "is_absent", lambda state: not (state / database.FILE).exists())
    monkeypatch.setattr(database, "clock", lambda _: literal(at[0]))
    monkeypatch.setattr(leases, "RENEW_S", 9e9)
    return at


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are taken by a process of another machine."""
    monkeypatch.setattr(processes, "identity", lambda: ELSEWHERE)


def taken(workspace: Workspace) -> Lease:
    lease = leases._take(workspace.state, NAME)
    assert isinstance(lease, Lease)
    return lease


def test_each_holder_has_a_higher_epoch(workspace: Workspace) -> None:
    with leased(workspace.state, NAME) as first:
        first.confirm()
    with leased(workspace.state, NAME) as second, leased(workspace.state, "loop:other") as other:
        assert (first.epoch, second.epoch, other.epoch) == (1, 2, 1)


def test_who_lost_the_lease_may_not_act(workspace: Workspace) -> None:
    with leased(workspace.state, NAME) as first, leased(workspace.state, NAME) as second:
        second.confirm()
        with pytest.raises(LeaseLostError, match=r"loop:tiny: .*, pid \d+ has taken it over; this process ends"):
            first.confirm()


def test_an_act_of_who_lost_the_lease_changes_nothing(workspace: Workspace) -> None:
    from tasks.loop.history import LoopRecord, last_loop, save_loop

    state = workspace.state / "projects" / "tiny"
    with leased(workspace.state, NAME) as first, leased(workspace.state, NAME) as second:
        save_loop(state, LoopRecord("l1", "running"), second)
        with pytest.raises(LeaseLostError):
            save_loop(state, LoopRecord("l1", "failed"), first)
    assert last_loop(state) == LoopRecord("l1", "running")


def test_the_end_of_who_lost_the_lease_releases_nothing(
    workspace: Workspace, clock: list[float], elsewhere: None
) -> None:
    first = taken(workspace)
    clock[0] += leases.TTL_S + 1
    second = taken(workspace)
    leases._extend(first, None)
    assert is_leased(workspace.state, NAME)
    leases._extend(second, None)
    assert not is_leased(workspace.state, NAME)


def test_a_holder_on_another_machine_is_waited_for_until_its_lease_runs_out(
    workspace: Workspace, clock: list[float], elsewhere: None
) -> None:
    first = taken(workspace)
    with (
        pytest.raises(StoreError, match=r"loop:tiny: macbook\.office\.lan, pid 4242, has it"),
        leased(workspace.state, NAME),
    ):
        pytest.fail("taken twice")
    clock[0] += leases.TTL_S - 1
    leases._extend(first, leases.TTL_S)
    clock[0] += leases.TTL_S - 1
    assert is_leased(workspace.state, NAME)
    clock[0] += 2
    assert not is_leased(workspace.state, NAME)
    assert taken(workspace).epoch == 2


def test_a_dead_holder_on_this_machine_is_not_waited_for(
    workspace: Workspace, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = {**processes.identity(), "started": "before"}
    with monkeypatch.context() as other:
        other.setattr(processes, "identity", lambda: dead)
        taken(workspace)
    assert not is_leased(workspace.state, NAME)
    assert taken(workspace).epoch == 2
    assert is_leased(workspace.state, NAME)


def test_the_holder_renews_it_while_it_works(
    workspace: Workspace, clock: list[float], elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    with leased(workspace.state, NAME):
        for _ in range(3):
            clock[0] += leases.TTL_S - 1
            time.sleep(0.2)
        assert is_leased(workspace.state, NAME)
    assert not is_leased(workspace.state, NAME)


def test_a_paused_writer_is_ended_before_a_holder_that_lives_loses_its_lease() -> None:
    assert database.REST_S < leases.TTL_S / 2
    assert leases.RENEW_S + database.REST_S < leases.TTL_S


def test_after_a_restore_epochs_go_on_above_the_copys_and_those_seen_elsewhere(workspace: Workspace) -> None:
    with leased(workspace.state, NAME) as old:
        with database.writing(workspace.state) as connection:
            leases.void_leases(connection, {NAME: 0, "loop:seen": 3 * leases.RESTORED, "loop:lost": 0})
        with pytest.raises(LeaseLostError):
            old.confirm()
    for name, above in (
        (NAME, leases.RESTORED),
        ("loop:seen", 3 * leases.RESTORED),
        ("loop:lost", leases.RESTORED - 1),
    ):
        with leased(workspace.state, name) as lease:
            assert lease.epoch > above
