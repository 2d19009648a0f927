"""The registered models, as rows of the state database: to whom each belongs, and how far MLflow follows its moves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import GateRefused, StoreError
from models.serving.registry_comparison import Intent, Projection
from tasks.host import database
from tasks.state.workspace_id import own_id

if TYPE_CHECKING:
    from sqlalchemy import Connection


def projection_of(root: Path, project: str) -> Projection:
    """Return how far MLflow follows a project's moves; the defaults if nothing is known.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(root) as connection:
        return read(connection, project)


def projections(root: Path) -> dict[str, Projection]:
    """Return how far MLflow follows the moves of each project that is registered there."""
    from sqlalchemy import select

    from tasks.host.tables import registered_models

    with database.reading(root) as connection:
        rows = connection.execute(select(registered_models)).mappings()
        return {row["project"]: _projection(dict(row)) for row in rows}


def is_followed(connection: Connection, project: str) -> bool:
    """Return whether MLflow alone says what serves: this workspace never registered the model, or another owns it."""
    from sqlalchemy import select

    from tasks.host.tables import registered_models as models

    row = connection.execute(select(models.c.owner).where(models.c.project == project)).first()
    return row is None or row.owner not in ("", own_id(connection))


def is_unread(connection: Connection, project: str) -> bool:
    """Return whether MLflow may hold moves and versions of a project that were never read."""
    from sqlalchemy import select

    from tasks.host.tables import registered_models as models

    row = connection.execute(select(models.c.looked).where(models.c.project == project)).first()
    return row is not None and row.looked is None


def refuse_unread(connection: Connection, project: str) -> None:
    """Refuse to say that there is nothing as long as MLflow may hold moves and versions that were never read.

    Raises:
        StoreError: Nobody has looked at MLflow since the update, or since the database was restored.
    """
    if is_unread(connection, project):
        raise StoreError(
            f"{project}: its versions must be read from MLflow first, once after an update or a restore: "
            f"`loopline status {project}` reads them as soon as MLflow is there"
        )


def note_look(root: Path, projects: Collection[str]) -> None:
    """Record that MLflow is looked at now.

    Args:
        root: The workspace's state folder, `.loopline`.
        projects: The projects; one that was never read stays so.

    Raises:
        StoreError: The database cannot be used.
    """
    from tasks.host.tables import registered_models as models

    is_read = models.c.looked.is_not(None)
    with database.updating(root) as connection:
        now = database.clock(connection)
        connection.execute(models.update().where(models.c.project.in_(projects), is_read).values(looked=now))


def ask_again(connection: Connection) -> None:
    """Let MLflow be read for every model as at a first look, after the database was restored from a copy.

    Args:
        connection: A connection that writes.
    """
    from tasks.host.tables import registered_models

    connection.execute(registered_models.update().values(looked=None))


def waiting(root: Path) -> list[str]:
    """Return the projects with moves that MLflow does not have, and those that ask for a first look; one query."""
    from sqlalchemy import func, select

    from tasks.host.tables import champion_moves, registered_models, workspace

    models, moves = registered_models, champion_moves
    newest = select(func.max(moves.c.number)).where(moves.c.project == models.c.project).scalar_subquery()
    own_id = select(workspace.c.id).scalar_subquery()
    is_ours = (models.c.owner == "") | (models.c.owner == own_id)
    rows = select(models.c.project).where(is_ours, (newest > models.c.number) | models.c.looked.is_(None))
    with database.reading(root) as connection:
        return list(connection.scalars(rows.order_by(models.c.project)))


def foreign_owner(root: Path, project: str) -> str:
    """Return the id of the other workspace to which a project's model belongs; empty if none is known."""
    with database.reading(root) as connection:
        owner = read(connection, project).owner
        return "" if owner == own_id(connection) else owner


def refuse_foreign(connection: Connection, project: str, workspace: str) -> None:
    """Refuse to move a model that belongs to another workspace.

    Args:
        connection: A connection.
        project: The project's name.
        workspace: The id of this workspace.

    Raises:
        GateRefused: It does.
    """
    owner = read(connection, project).owner
    if owner not in ("", workspace):
        raise GateRefused(foreign(project, owner))


def foreign(project: str, owner: str) -> str:
    """Return what a workspace may not do with a model of another one, and the cures."""
    return (
        f"{project}: its registered model belongs to another workspace, {owner}, and this one follows it: promote "
        "there, give the project another name, name another registry by MLFLOW_TRACKING_URI, or take the model over "
        f"by `loopline adopt {project} --reason WHY`"
    )


def read(connection: Connection, project: str) -> Projection:
    """Return how far MLflow follows a project's moves, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import registered_models

    rows = select(registered_models).where(registered_models.c.project == project)
    row = connection.execute(rows).mappings().first()
    return _projection(dict(row)) if row else Projection()


def save(connection: Connection, project: str, projection: Projection) -> None:
    """Insert or update the row of a project, by a connection that writes."""
    from tasks.host.tables import registered_models

    database.upsert(connection, registered_models, {"project": project, **asdict(projection)})


def _projection(row: dict[str, Any]) -> Projection:
    del row["project"]
    return Projection(**{**row, "intents": tuple(Intent(**intent) for intent in row["intents"])})
