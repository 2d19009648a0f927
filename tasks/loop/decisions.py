"""The record of all decisions on signals, to retrain or not, with the reasons; rows of the state database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import or_, select

from models.triggers.signal import Decision, Signal
from tasks.host import database
from tasks.host.tables import decisions

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Row


def record_next(state: Path, decision: Decision, before: Decision | None) -> Decision:
    """Append a decision of a flow run, unless another process has appended one meanwhile; return the one that stands.

    Prefect may run a flow on another machine while the first one is paused.

    Args:
        state: The project's folder under `.loopline/projects/`.
        decision: The policy's or a person's decision about a signal.
        before: The run's last decision that the decision takes into account; None: there was none.

    Raises:
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1]) as connection:
        last = next(iter(_read(connection, state, decisions.c.flow_run == decision.flow_run, limit=1)), None)
        if last is not None and last != before:
            return last
        connection.execute(decisions.insert(), _row(state, decision))
    return decision


def record(state: Path, decision: Decision) -> None:
    """Append a decision; it is on the disk when this returns.

    Args:
        state: The project's folder under `.loopline/projects/`.
        decision: The policy's or a person's decision about a signal.

    Raises:
        StoreError: The database cannot be written.
    """
    with database.writing(state.parents[1]) as connection:
        connection.execute(decisions.insert(), _row(state, decision))


def read(state: Path) -> list[Decision]:
    """Return the decisions, oldest first."""
    return _newest(state)[::-1]


def newest(root: Path, projects: Sequence[str], limit: int) -> dict[str, list[Decision]]:
    """Return the last decisions of each project that has some, newest first, at most `limit` of each.

    `root` is the workspace's state folder, `.loopline`.
    """
    decided: dict[str, list[Decision]] = {}
    rows = database.newest(decisions.c.number, limit, _columns(), project=projects)
    with database.reading(root) as connection:
        for row in connection.execute(rows):
            decided.setdefault(row.project, []).append(_decision(row))
    return decided


def concerning(root: Path, signals: Mapping[str, Sequence[Signal]]) -> dict[str, list[Decision]]:
    """Return by project the decisions on these signals, and all that were made since the first of them, oldest first.

    Args:
        root: The workspace's state folder, `.loopline`.
        signals: Signals by project, at least one of each.
    """
    decided: dict[str, list[Decision]] = {project: [] for project in signals}
    ids = {signal.id for signals_of_project in signals.values() for signal in signals_of_project}
    since = min((signal.at for signals_of_project in signals.values() for signal in signals_of_project), default=0.0)
    rows = select(*_columns()).where(
        decisions.c.project.in_(signals), or_(decisions.c.signal.in_(ids), decisions.c.at >= since)
    )
    with database.reading(root) as connection:
        for row in connection.execute(rows.order_by(decisions.c.number)) if signals else ():
            decided[row.project].append(_decision(row))
    return decided


def of_flow_run(state: Path, flow_run: str) -> Decision | None:
    """Return the last decision of a run of the `retrain` flow, or None; a repeated run does not decide again."""
    return next(iter(_newest(state, decisions.c.flow_run == flow_run, limit=1)), None)


def _newest(state: Path, *conditions: ColumnElement[bool], limit: int | None = None) -> list[Decision]:
    with database.reading(state.parents[1]) as connection:
        return _read(connection, state, *conditions, limit=limit)


def _read(
    connection: Connection, state: Path, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[Decision]:
    mine = select(*_columns()).where(decisions.c.project == state.name, *conditions)
    return [_decision(row) for row in connection.execute(mine.order_by(decisions.c.number.desc()).limit(limit))]


def _row(state: Path, decision: Decision) -> dict[str, Any]:
    return {
        "project": state.name,
        "signal": decision.signal.id,
        "content": database.plain(decision),
        **{name: getattr(decision, name) for name in ("flow_run", "at", "action", "until")},
    }


def _columns() -> list[ColumnElement[Any]]:
    plain = [column for column in decisions.c if column is not decisions.c.content]
    return [*plain, database.text(decisions.c.content)]


def _decision(row: Row[Any]) -> Decision:
    """Return a row's decision; of one whose form is not known, what the columns say: nothing begins by it."""
    try:
        return Decision.model_validate_json(row.content)
    except ValidationError:
        cure = "update Loopline, or delete the row: then the signal is weighed again"
        return Decision(
            signal=Signal(id=row.signal, kind="unknown", at=row.at, reason=""),
            at=row.at,
            action="wait",
            reasons=[f"{row.action}: row {row.number} of the table `decisions` has an unknown form: {cure}"],
            until=row.until,
            flow_run=row.flow_run,
        )
