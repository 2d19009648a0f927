"""The events that a workspace has stored for Prefect."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from tasks.host import database
from tasks.host.tables import events
from tasks.host.workspace import Workspace


def stored_events(workspace: Workspace, state: str = "waiting") -> list[dict[str, Any]]:
    """Return the content of the events in this state, in the order in which they were stored."""
    rows = select(events.c.content).where(events.c.state == state).order_by(events.c.number)
    with database.reading(workspace.state) as connection:
        return list(connection.scalars(rows))
