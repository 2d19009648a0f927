"""A holder that lives keeps its lease, whatever other processes do with the state database meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tasks.host import database, leases, processes
from tasks.host.leases import is_leased, leased
from tasks.host.store_addresses import STATE_URL
from tasks.host.workspace import Workspace
from tests.postgres import is_installed, new_database, postgres

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]
NAME = "loop:flights"
ELSEWHERE = {"host": "macbook.office.lan", "pid": 4242, "started": "deadbeef/1"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture
def shared(server: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace in a Postgres of its own, whose leases run out within seconds."""
    monkeypatch.setenv(STATE_URL, new_database(server, workspace.root.parent.name))
    monkeypatch.setattr(leases, "TTL_S", 1.5)
    monkeypatch.setattr(leases, "RENEW_S", 0.3)
    with database.writing(workspace.state):
        return workspace


def test_a_writer_that_stalls_takes_no_lease_of_a_holder_that_lives(
    shared: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "identity", lambda: ELSEWHERE)
    with leased(shared.state, NAME) as lease:
        with database.writing(shared.state):
            time.sleep(2 * leases.TTL_S)
            assert is_leased(shared.state, NAME)
        lease.confirm()
    assert not is_leased(shared.state, NAME)


def test_a_renewal_waits_for_no_writer_and_renews_no_lease_that_another_has_taken(
    shared: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "identity", lambda: ELSEWHERE)
    monkeypatch.setattr(leases, "RENEW_S", 9e9)
    first = leases._take(shared.state, NAME)
    time.sleep(leases.TTL_S)
    second = leases._take(shared.state, NAME)
    assert isinstance(first, leases.Lease)
    assert isinstance(second, leases.Lease)
    assert (second.epoch, second.renewed is not None) == (2, True)
    with database.writing(shared.state):
        leases._extend(first, 3600.0)
    time.sleep(leases.TTL_S)
    assert not is_leased(shared.state, NAME)
    leases._extend(second, 3600.0)
    assert is_leased(shared.state, NAME)
