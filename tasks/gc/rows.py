"""Rows of the state database that loops leave: records of steps, lines that MLflow has, events that Prefect has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, literal, select

from tasks.gc.candidates import GarbageCandidate
from tasks.gc.retention import DAY_S, history_days, keep_days
from tasks.gc.snapshot import WITHDRAWN, Snapshot
from tasks.host import database
from tasks.host.tables import deliveries, events, outbox
from tasks.host.tables import step_records as table

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table

NAMING = ("version", "search")
"""Steps whose records name bytes of other tools: the rows stay, under another step, until the bytes are gone."""


def step_records(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the records of steps."""
    for project in snapshot.projects.values():
        for record in project.records:
            reason = snapshot.why(f"{project.name}/record:{record.number}")
            yield GarbageCandidate(project.name, f"{record.step} {record.number}", record.size, reason)


def withdraw_records(connection: Connection, project: str, chosen: Sequence[GarbageCandidate]) -> None:
    """Remove records; those that name data in DVC or a study are withdrawn until these are gone."""
    for step in {candidate.name.partition(" ")[0] for candidate in chosen}:
        numbers = [int(candidate.name.split()[1]) for candidate in chosen if candidate.name.startswith(f"{step} ")]
        rows = table.c.project == project, table.c.number.in_(numbers)
        if step not in NAMING:
            connection.execute(table.delete().where(*rows))
            continue
        name, again = f"{WITHDRAWN}{step}", table.alias()
        keys = again.select().with_only_columns(again.c.key).where(again.c.number.in_(numbers))
        connection.execute(
            table.delete().where(table.c.project == project, table.c.step == name, table.c.key.in_(keys))
        )
        connection.execute(table.update().where(*rows).values(step=literal(name)))


def delivered_lines(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the lines of loops in the outbox, by loop, of which MLflow has all."""
    size, last = func.sum(func.length(_text(outbox))), func.max(outbox.c.number)
    rows = select(outbox.c.project, outbox.c.loop_id, size.label("size"), last.label("last")).group_by(
        outbox.c.project, outbox.c.loop_id
    )
    with database.reading(snapshot.workspace.state) as connection:
        delivered = {row.loop_id: row for row in connection.execute(select(deliveries))}
        for row in connection.execute(rows.where(outbox.c.project.in_(list(snapshot.projects)))).all():
            delivery = delivered.get(row.loop_id)
            reason = "MLflow lacks a part of it"
            if delivery is not None and delivery.number >= row.last:
                reason = snapshot.young(delivery.at, keep_days())
            yield GarbageCandidate(row.project, row.loop_id, row.size, reason)


def withdraw_lines(connection: Connection, project: str, chosen: Sequence[GarbageCandidate]) -> None:
    """Remove the lines of loops, unless another line came since."""
    last = select(deliveries.c.number).where(deliveries.c.loop_id == outbox.c.loop_id).scalar_subquery()
    names = [candidate.name for candidate in chosen]
    rows = outbox.c.project == project, outbox.c.loop_id.in_(names), outbox.c.number <= last
    connection.execute(outbox.delete().where(*rows))


def past_events(snapshot: Snapshot) -> Iterator[GarbageCandidate]:
    """Yield the events that Prefect has or has refused, by project; a signal without a decision stays."""
    rows = select(events.c.project, func.count().label("count"), func.sum(func.length(_text(events))).label("size"))
    rows = rows.where(events.c.project.in_(list(snapshot.projects))).group_by(events.c.project)
    before = snapshot.now - history_days() * DAY_S
    with database.reading(snapshot.workspace.state) as connection:
        for is_old in (True, False):
            reason = "" if is_old else "younger than its retention, or open"
            for row in connection.execute(rows.where(_over(before) if is_old else ~_over(before))):
                yield GarbageCandidate(row.project, f"{row.count} events before {before:.0f}", row.size, reason)


def withdraw_events(connection: Connection, project: str, chosen: Sequence[GarbageCandidate]) -> None:
    """Remove the old events of a project."""
    before = float(chosen[0].name.split()[-1])
    connection.execute(events.delete().where(events.c.project == project, _over(before)))


def _over(before: float) -> ColumnElement[bool]:
    return (events.c.state != "waiting") & ~events.c.is_open & (func.coalesce(events.c.sent, 0.0) < before)


def _text(table: Table) -> Any:
    return database.text(table.c.content)
