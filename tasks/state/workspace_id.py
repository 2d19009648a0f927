"""The id of a workspace, in its state database: stores that several workspaces share tell them apart by it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from models.files import storing, write_text
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Connection

FILE = "workspace-id"
"""The id again, beside the database: one that was put back from before it had an id, by an upgrade, gets the same."""


def workspace_id(root: Path) -> str:
    """Return the workspace's id, made at its first use; the machines of a shared state database have one and the same.

    Args:
        root: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database or the folder cannot be used.
    """
    from tasks.host.tables import workspace

    with storing(root / FILE):
        file_id = (root / FILE).read_text().strip() if (root / FILE).exists() else ""
    with database.reading(root) as connection:
        stored = own_id(connection)
    if stored is None:
        with database.writing(root) as connection:
            if (stored := own_id(connection)) is None:
                stored = file_id or uuid.uuid4().hex
                connection.execute(workspace.insert().values(id=stored))
    if stored != file_id:
        write_text(root / FILE, f"{stored}\n")
    return stored


def own_id(connection: Connection) -> str | None:
    """Return the workspace's id, by a connection; None if it has none yet, so that it owns nothing in other stores."""
    from sqlalchemy import select

    from tasks.host.tables import workspace

    return connection.scalar(select(workspace.c.id))
