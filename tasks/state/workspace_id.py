"""The id of a workspace, in its state database: stores that several workspaces share tell them apart by it."""

from __future__ import annotations

import uuid
from pathlib import Path

from tasks.host import database


def workspace_id(root: Path) -> str:
    """Return the workspace's id, made at its first use; the machines of a shared state database have one and the same.

    Args:
        root: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database cannot be used.
    """
    from sqlalchemy import select

    from tasks.host.tables import workspace

    with database.reading(root) as connection:
        stored = connection.scalar(select(workspace.c.id))
    if stored:
        return str(stored)
    with database.writing(root) as connection:
        if (stored := connection.scalar(select(workspace.c.id))) is None:
            stored = uuid.uuid4().hex
            connection.execute(workspace.insert().values(id=stored))
    return str(stored)
