"""The registered versions, as rows of the state database: what MLflow holds of them is needed only to register one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.serving.registry import KEY, RegisteredVersion
from tasks.host import database

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping


@dataclass(frozen=True)
class StoredVersion:
    """A registered version.

    Args:
        number: MLflow's number.
        run: MLflow's id of the run that made it.
        place: URI of its files.
        tags: As it was registered, or judged last; the files' hashes too.
        at: When it was registered; Unix time, seconds.
        is_removed: It was deleted in MLflow since.
    """

    number: str
    run: str
    place: str
    tags: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0
    is_removed: bool = False

    @property
    def registered(self) -> RegisteredVersion:
        """The version as rules and servers see it."""
        return RegisteredVersion(number=self.number, tags=dict(self.tags))


def versions_of(root: Path, project: str) -> list[StoredVersion]:
    """Return a project's versions that were not removed, oldest first.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(root) as connection:
        return read(connection, project)


def version_of(root: Path, project: str, number: str) -> StoredVersion | None:
    """Return the version with this number; None if there is none, or it was removed."""
    with database.reading(root) as connection:
        return next(iter(read(connection, project, version=number)), None)


def read(connection: Connection, project: str, **columns: str) -> list[StoredVersion]:
    """Return the versions whose columns have these values, oldest first, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import versions

    same = [versions.c[name] == value for name, value in {"project": project, **columns}.items()]
    rows = select(versions).where(*same, versions.c.is_removed.is_(False)).order_by(versions.c.at, versions.c.version)
    return [_version(row) for row in connection.execute(rows).mappings()]


def save(connection: Connection, project: str, *stored: StoredVersion) -> None:
    """Insert or update versions, by a connection that writes."""
    from tasks.host.tables import versions

    if stored:
        database.upsert(connection, versions, *(_row(project, version) for version in stored))


def _row(project: str, version: StoredVersion) -> dict[str, Any]:
    return {
        "project": project,
        "version": version.number,
        "key": version.tags.get(KEY, ""),
        "run": version.run,
        "place": version.place,
        "tags": dict(version.tags),
        "at": version.at,
        "is_removed": version.is_removed,
    }


def _version(row: RowMapping) -> StoredVersion:
    return StoredVersion(row["version"], row["run"], row["place"], row["tags"], row["at"], row["is_removed"])
