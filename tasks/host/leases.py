"""Leases: which process may act, among those of several machines that share a state database.

The holder renews its lease. Whoever takes one that ran out, or that was released, raises its epoch. A visible act
checks the epoch in its own transaction: two processes may compute at once, but only the last holder can record, promote
or end a loop. Time is the database's time, so a machine's wrong clock changes nothing.

A renewal is one statement on one row: a holder that lives loses its lease by no other process that is slow. Postgres
ends a transaction that rests before half a lease is over, so a paused process holds up nobody for longer.

With SQLite all processes are on machines that share a disk: there the lock file decides who may take the lease, and it
never runs out. The epoch is checked all the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from models.errors import LeaseLostError, StoreError
from tasks.host import database, processes
from tasks.host.reconnecting import patience
from tasks.host.tables import leases

if TYPE_CHECKING:
    from sqlalchemy import Connection

TTL_S = 30.0
"""Time after its last renewal at which a lease has run out."""
RENEW_S = 10.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Lease:
    """A lease that this process took.

    Args:
        state: The workspace's state folder, `.loopline`.
        name: What may be done, such as `loop:flights`.
        epoch: Counts the holders.
        renewed: When the holder before renewed it for the last time, by the database's clock; None if it released it,
            or if nobody renews it.
    """

    state: Path
    name: str
    epoch: int
    renewed: float | None = None

    def check(self, connection: Connection) -> None:
        """Check in the transaction of a visible act that nobody has taken the lease since.

        Raises:
            LeaseLostError: Another process has the lease.
        """
        row = connection.execute(select(leases).where(leases.c.name == self.name)).first()
        if row is None or row.epoch != self.epoch:
            holder = _shown(row.holder) if row else "another process"
            raise LeaseLostError(f"{self.name}: {holder} has taken it over; this process ends and records nothing more")

    def confirm(self) -> None:
        """Check that nobody has taken the lease since, before an act in another store.

        Raises:
            LeaseLostError: Another process has the lease.
            StoreError: The database cannot be used.
        """
        with database.reading(self.state) as connection:
            self.check(connection)


@contextlib.contextmanager
def leased(state: Path, name: str, timeout_s: float = 0.0, above: int = 0) -> Iterator[Lease]:
    """Hold a lease during the block.

    Args:
        state: The workspace's state folder, `.loopline`.
        name: What may be done.
        timeout_s: Time to wait for another holder, in seconds.
        above: The highest epoch that was seen in another store; the database may have been restored from a copy.

    Raises:
        StoreError: Another process holds it, or the database cannot be used.
    """
    with tried(state, name, timeout_s, above) as lease:
        if not isinstance(lease, Lease):
            raise StoreError(f"{name}: {_shown(lease)}, has it: wait for it, or end it")
        yield lease


@contextlib.contextmanager
def tried(state: Path, name: str, timeout_s: float = 0.0, above: int = 0) -> Iterator[Lease | Mapping[str, Any]]:
    """Try to hold a lease during the block; yield the identity of the holder if another process holds it.

    Args:
        state: The workspace's state folder, `.loopline`.
        name: What may be done.
        timeout_s: Time to wait for another holder, in seconds.
        above: As of `leased`.

    Raises:
        StoreError: The database cannot be used.
    """
    deadline = time.monotonic() + timeout_s
    while not isinstance(lease := _take(state, name, above), Lease):
        if time.monotonic() >= deadline:
            yield lease
            return
        time.sleep(_POLL_S)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(lease, ended), name="loopline-lease", daemon=True)
    if database.is_shared():
        renewal.start()
    try:
        with patience(TTL_S):  # what the holder computed is not lost by a restart of the database
            yield lease
    finally:
        ended.set()
        if renewal.is_alive():
            renewal.join()  # a renewal under way would undo the release
        with contextlib.suppress(StoreError):  # it runs out by itself
            _extend(lease, None)


def is_leased(state: Path, name: str) -> bool:
    """Return whether a process holds the lease, as far as the database knows: without a shared one, False."""
    with database.reading(state) as connection:
        row = connection.execute(select(leases).where(leases.c.name == name)).first()
        return row is not None and _is_valid(row.holder, row.until, database.now(connection))


def _shown(holder: Mapping[str, Any]) -> str:
    return f"{holder['host']}, pid {holder['pid']}"


RESTORED = 1_000_000
"""What a restored database adds to the epochs of its copy: more holders than a lease had since."""


def void_leases(connection: Connection, seen: Mapping[str, int] = MappingProxyType({})) -> None:
    """End all leases after the database was put back from a copy, and let epochs go on above those of the lost rows.

    Files and manifests bear epochs that the copy does not know: a later holder must not have a lower one.

    Args:
        connection: A connection that writes.
        seen: The highest epoch of each lease that was seen in another store; the copy may lack the lease.
    """
    connection.execute(leases.update().values(until=None, epoch=leases.c.epoch + RESTORED))
    epochs = {row.name: row.epoch for row in connection.execute(select(leases.c.name, leases.c.epoch))}
    for name, epoch in seen.items():
        above = max(epochs.get(name, RESTORED), epoch + 1)
        if above != epochs.get(name):
            database.upsert(connection, leases, {"name": name, "holder": {}, "epoch": above, "until": None})


def _take(state: Path, name: str, above: int = 0) -> Lease | dict[str, Any]:
    """Take a lease that nobody holds; return the holder if somebody does."""
    with database.writing(state) as connection:
        now = database.now(connection)
        # locked: a renewal in this moment comes before, or finds the lease taken
        row = connection.execute(select(leases).where(leases.c.name == name).with_for_update()).first()
        if row and _is_valid(row.holder, row.until, now):
            return dict(row.holder)
        epoch = 1 + max(row.epoch if row else 0, above)
        until = now + TTL_S if database.is_shared() else None
        holder = processes.identity()
        database.upsert(connection, leases, {"name": name, "holder": holder, "epoch": epoch, "until": until})
    return Lease(state, name, epoch, row.until - TTL_S if row and row.until is not None else None)


def _is_valid(holder: Mapping[str, Any], until: float | None, now: float) -> bool:
    """Return whether a lease has not run out; one of a dead process on this machine has."""
    if until is None or until < now:
        return False
    return not processes.is_here(holder) or processes.is_alive(holder)


def _renew(lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(RENEW_S):
        with contextlib.suppress(StoreError):  # the database is away: tried again, until the lease runs out
            _extend(lease, TTL_S)


def _extend(lease: Lease, ttl_s: float | None) -> None:
    """Let the lease run out in `ttl_s` seconds, or release it; nothing happens if another process has taken it."""
    with database.updating(lease.state) as connection:
        mine = (leases.c.name == lease.name, leases.c.epoch == lease.epoch)
        until = None if ttl_s is None else database.clock(connection) + ttl_s
        connection.execute(leases.update().where(*mine).values(until=until))
