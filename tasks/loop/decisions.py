"""The record of all decisions on signals, to retrain or not, with the reasons; rows of the state database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from models.triggers.signal import Decision
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement


def record(state: Path, decision: Decision) -> None:
    """Append a decision; it is on the disk when this returns.

    Args:
        state: The project's folder under `.loopline/projects/`.
        decision: The policy's or a person's decision about a signal.

    Raises:
        StoreError: The database cannot be written.
    """
    from tasks.host.tables import decisions

    row = {
        "project": state.name,
        "signal": decision.signal.id,
        "content": database.plain(decision),
        **{name: getattr(decision, name) for name in ("flow_run", "at", "action", "until")},
    }
    with database.writing(state.parents[1]) as connection:
        connection.execute(decisions.insert(), row)


def read(state: Path) -> list[Decision]:
    """Return the decisions, oldest first."""
    return _newest(state)[::-1]


def newest(state: Path, most: int) -> list[Decision]:
    """Return the last decisions, newest first, at most `most`."""
    return _newest(state, most=most)


def of_flow_run(state: Path, flow_run: str) -> Decision | None:
    """Return the last decision of a run of the `retrain` flow, or None; a repeated run does not decide again."""
    from tasks.host.tables import decisions

    return next(iter(_newest(state, decisions.c.flow_run == flow_run, most=1)), None)


def _newest(state: Path, *conditions: ColumnElement[bool], most: int | None = None) -> list[Decision]:
    from sqlalchemy import select

    from tasks.host.tables import decisions

    mine = select(decisions.c.content).where(decisions.c.project == state.name, *conditions)
    with database.reading(state.parents[1]) as connection:
        contents = connection.scalars(mine.order_by(decisions.c.number.desc()).limit(most))
        return [Decision.model_validate(content) for content in contents]
