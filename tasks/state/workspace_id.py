"""The id of a workspace, in its state database: stores that several workspaces share tell them apart by it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Connection


def workspace_id(root: Path) -> str:
    """Return the workspace's id, made at its first use; the machines of a shared state database have one and the same.

    Args:
        root: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database cannot be used.
    """
    from tasks.host.tables import workspace

    with database.reading(root) as connection:
        stored = own_id(connection)
    if stored:
        return stored
    with database.writing(root) as connection:
        if (stored := own_id(connection)) is None:
            stored = uuid.uuid4().hex
            connection.execute(workspace.insert().values(id=stored))
    return stored


def own_id(connection: Connection) -> str | None:
    """Return the workspace's id, by a connection; None if it has none yet, so that it owns nothing in other stores."""
    from sqlalchemy import select

    from tasks.host.tables import workspace

    return connection.scalar(select(workspace.c.id))
