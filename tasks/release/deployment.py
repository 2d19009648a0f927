"""What the servers of a deployment know of each other, exchanged through the shared state database.

Each process that leads a project's release writes its own counts every EXCHANGE_S, and reads the sum of the others'. So
a version is judged by all its traffic, and every server rolls it back by the same counts. Each server, also one that
does not lead, notes that it is alive: the live servers of a project divide the rate limit. This has a thread of its
own: a database that is slow or away delays neither a request nor a rollback; then what was read last counts.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError
from models.serving.releases import Release
from tasks.host import database
from tasks.host.logs import Repeated
from tasks.release.shared_state import SharedNumber, VersionOutcomes
from tasks.state import findings

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from models.monitoring.report import MonitoringReport

EXCHANGE_S = 2.0
LIVE_S = 15.0
"""Time after which a server that writes nothing is not live; its counts stay in the sum."""
KEPT_S = 7 * 86400.0
"""Time after which the counts of a server that ended are deleted."""

_log = logging.getLogger("loopline.serve")


@dataclass(frozen=True)
class DeploymentCounts:
    """The outcomes of each version on several servers with one release. `num_servers`: those that are live."""

    num_servers: int = 0
    outcomes: Mapping[str, VersionOutcomes] = field(default_factory=dict)


@dataclass(frozen=True)
class DeployedRelease:
    """A release of a deployment, and what its servers counted since it began."""

    release: Release
    counts: DeploymentCounts


class CountExchange:
    """The exchange of one project's counts between this server and the others.

    `report`: monitoring's latest, made on any machine; None before the first exchange. `num_servers`: those of the
    project that are live, this one too, as read last. `database`: the folder of the workspace's state.

    Args:
        state: The project's folder under `.loopline/projects/`.
    """

    def __init__(self, state: Path) -> None:
        self.database, self._project = state.parents[1], state.name
        self._server = uuid.uuid4().hex
        self._own: tuple[Release, Mapping[str, VersionOutcomes]] | None = None
        self._others = (-1, 0.0, DeploymentCounts())  # generation, when it began by the database's clock, counts
        self.report: MonitoringReport | None = None
        self.num_servers = 1

    def offer(self, release: Release, outcomes: Mapping[str, VersionOutcomes]) -> None:
        """Note this server's counts since its release began; the next exchange writes them."""
        self._own = release, {version: outcomes.get(version, VersionOutcomes()) for version in release.loaded}

    def others(self, release: Release) -> Mapping[str, VersionOutcomes]:
        """Return the other servers' counts, as read last; none before they were read for this release."""
        generation, _, counts = self._others
        return counts.outcomes if generation == release.generation else {}

    def run(self, connection: Connection) -> None:
        """Write this server's counts, and read those of the others and monitoring's report, in a transaction."""
        from tasks.host.tables import served_versions as table

        now = database.now(connection)
        if self._own is None:  # another process of this workspace leads
            self._note_as_live(connection, now, None, None)
            return
        release, outcomes = self._own
        generation, began, _ = self._others
        began = began if release.generation == generation else now
        self._note_as_live(connection, now, release, began)
        is_mine, is_old = table.c.server == self._server, table.c.at < now - KEPT_S
        # Old ones of all projects: nobody else deletes those of a project that was renamed or is served no more.
        connection.execute(table.delete().where(is_old | (is_mine & (table.c.project == self._project))))
        fixed = {"server": self._server, "project": self._project, "at": now}
        fixed |= {"release": _name_of(release), "trial": release.trial}
        rows = [{**fixed, "version": version, **counts.model_dump()} for version, counts in outcomes.items()]
        if rows:
            connection.execute(table.insert(), rows)
        self._others = release.generation, began, _sum(connection, self._project, release, began, ~is_mine)
        self.report = findings.newer_than(self.report, self._project, connection)

    def leave(self, connection: Connection) -> None:
        """Note that this server ends: the others need not wait until it is no longer live."""
        from tasks.host.tables import servers

        connection.execute(servers.delete().where(servers.c.server == self._server))

    def _note_as_live(self, connection: Connection, now: float, release: Release | None, began: float | None) -> None:
        from sqlalchemy import func, select

        from tasks.host.tables import servers

        connection.execute(servers.delete().where(servers.c.at < now - LIVE_S))
        content = None if release is None else release.model_dump(mode="json")
        row = {"server": self._server, "project": self._project, "release": content, "began": began, "at": now}
        database.upsert(connection, servers, row)
        ours = select(func.count()).select_from(servers).where(servers.c.project == self._project)
        self.num_servers = connection.scalar(ours) or 1


def deployed(state: Path) -> DeployedRelease | None:
    """Return the release of the live server that began its own last, of any machine; None if no server is live.

    Args:
        state: The project's folder under `.loopline/projects/`.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(state.parents[1]) as connection:
        live = _live(connection, state.name)
        if not live:
            return None
        release, began = live[0]
        return DeployedRelease(release, _sum(connection, state.name, release, began))


def live_releases(state: Path) -> list[Release]:
    """Return the release of each live server that leads one, of any machine.

    Args:
        state: The project's folder under `.loopline/projects/`.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(state.parents[1]) as connection:
        return [release for release, _ in _live(connection, state.name)]


def _live(connection: Connection, project: str) -> list[tuple[Release, float]]:
    """Return the releases of a project's live servers and when each began, the newest first."""
    from sqlalchemy import select

    from tasks.host.tables import servers

    is_live = servers.c.at >= database.now(connection) - LIVE_S
    where = (servers.c.project == project, is_live, servers.c.release.is_not(None))
    rows = select(servers.c.release, servers.c.began).where(*where).order_by(servers.c.began.desc())
    return [(Release.model_validate(row.release), row.began) for row in connection.execute(rows)]


def counted(state: Path, release: Release) -> DeploymentCounts:
    """Return what all servers with this release counted since it began.

    Args:
        state: The project's folder under `.loopline/projects/`.
        release: The release.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(state.parents[1]) as connection:
        age_s = time.time() - release.since  # both by this host's clock, which may differ from the database's
        return _sum(connection, state.name, release, database.now(connection) - age_s)


def exchange(exchanges: Sequence[CountExchange]) -> None:
    """Run the exchanges of a server's projects once, in one transaction.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.writing(exchanges[0].database, durable=False) as connection:
        for counter in exchanges:
            counter.run(connection)


def follow(exchanges: Sequence[CountExchange], stop: threading.Event, num_servers: SharedNumber) -> None:
    """Run the exchanges of a server's projects until `stop` is set.

    Args:
        exchanges: One for each project.
        stop: Ends this.
        num_servers: Set to the live servers of the project that has most; they divide the rate limit.
    """
    trouble = Repeated(_log)
    while not stop.wait(EXCHANGE_S):
        try:
            exchange(exchanges)
            num_servers.set(max(counter.num_servers for counter in exchanges))
        except Exception as error:  # noqa: BLE001 - a failed exchange must not end the thread
            trace = not isinstance(error, StoreError)
            trouble.log(
                logging.WARNING, "the counts of other servers stay as they were read last", error, exc_info=trace
            )
    with contextlib.suppress(StoreError, OSError), database.writing(exchanges[0].database, durable=False) as connection:
        for counter in exchanges:
            counter.leave(connection)


def _sum(
    connection: Connection, project: str, release: Release, since: float, *which: ColumnElement[bool]
) -> DeploymentCounts:
    """Sum up the servers with this release that wrote since it began: what others wrote is of an earlier one."""
    from sqlalchemy import func, select

    from tasks.host.tables import served_versions as table

    is_same = (table.c.release == _name_of(release), table.c.trial == release.trial)
    where = (table.c.project == project, *is_same, table.c.at >= since, *which)
    sums = [func.sum(table.c[name]) for name in VersionOutcomes.model_fields]
    rows = connection.execute(select(table.c.version, *sums).where(*where).group_by(table.c.version))
    outcomes = {
        version: VersionOutcomes(answers=int(answers), failed=int(failed), slow=int(slow))
        for version, answers, failed, slow in rows
    }
    is_live = table.c.at >= database.now(connection) - LIVE_S
    num_servers = connection.scalar(select(func.count(table.c.server.distinct())).where(*where, is_live))
    return DeploymentCounts(num_servers or 0, outcomes)


def _name_of(release: Release) -> str:
    """Return what two servers with the same release have in common: each numbers its generations by itself."""
    return f"{release.stable} {release.canary.version if release.canary else '-'}"
