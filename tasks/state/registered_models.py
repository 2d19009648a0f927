"""The registered models, as rows of the state database: to whom each belongs, and how far MLflow follows its moves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class RegisteredModel:
    """What is known of a project's registered model in MLflow.

    Args:
        owner: Id of the workspace that may move its champion; empty: not asked yet.
        challenger: The version that was judged last and is not the champion.
        number: The number of the last move that MLflow has; 0: none.
        alias: The version to which this workspace set the alias `champion` last.
        mark: `number:id` of the move that this workspace wrote into MLflow last; or empty.
        intents: Values of the alias that carriers are setting, each with its end (Unix time, seconds).
        looked: When MLflow was looked at last (Unix time, seconds); None: it must be.
        trouble: Why moves are not carried to MLflow; empty: they are.
    """

    owner: str = ""
    challenger: str | None = None
    number: int = 0
    alias: str | None = None
    mark: str = ""
    intents: list[Any] = field(default_factory=list)
    looked: float | None = None
    trouble: str = ""


def registered_model(root: Path, project: str) -> RegisteredModel:
    """Return what is known of a project's registered model; the defaults if nothing is.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(root) as connection:
        return read(connection, project)


def read(connection: Connection, project: str) -> RegisteredModel:
    """Return what is known of a project's registered model, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import registered_models

    columns = [registered_models.c[column.name] for column in fields(RegisteredModel)]
    row = connection.execute(select(*columns).where(registered_models.c.project == project)).mappings().first()
    return RegisteredModel(**row) if row else RegisteredModel()


def save(connection: Connection, project: str, model: RegisteredModel) -> None:
    """Insert or update the row of a project's registered model, by a connection that writes."""
    from tasks.host.tables import registered_models

    row = {column.name: getattr(model, column.name) for column in fields(RegisteredModel)}
    database.upsert(connection, registered_models, {"project": project, **row})
