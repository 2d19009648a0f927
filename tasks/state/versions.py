"""The registered versions, as rows of the state database: what MLflow holds of them is needed only to register one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.serving.registry import KEY, WITHDRAWN, RegisteredVersion
from tasks.host import database
from tasks.state import registered_models

if TYPE_CHECKING:
    from sqlalchemy import Connection, RowMapping


@dataclass(frozen=True)
class StoredVersion:
    """A registered version.

    Args:
        number: MLflow's number.
        run: MLflow's id of the run that made it.
        place: URI of its files, or their path in the workspace's state folder: a workspace may be moved.
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
        return RegisteredVersion(number=self.number, tags=dict(self.tags), place=self.place)


def place_below(root: Path, place: str) -> str:
    """Return a place as it is stored: one below the workspace's state folder by its path there, so that it may move.

    In a shared database it stays whole: the state folder of another machine is another one.
    """
    if database.is_shared():
        return place
    return place.removeprefix(f"{root.as_uri()}/").removeprefix(f"{root}/")


def place_whole(connection: Connection, root: Path) -> None:
    """Store every place below a workspace's state folder as a URI, by a connection to a shared database."""
    from sqlalchemy import select

    from tasks.host.tables import versions

    for project, version, place in connection.execute(select(versions.c.project, versions.c.version, versions.c.place)):
        row = (versions.c.project == project, versions.c.version == version)
        connection.execute(versions.update().where(*row).values(place=address_of(root, place)))


def address_of(root: Path, place: str) -> str:
    """Return the URI of a stored place; empty for none."""
    is_below = place and ":" not in place and not place.startswith("/")
    return f"{root.as_uri()}/{place}" if is_below else place


def versions_of(root: Path, project: str) -> list[StoredVersion]:
    """Return a project's versions that were not removed, oldest first.

    Args:
        root: The workspace's state folder, `.loopline`.
        project: The project's name.

    Raises:
        StoreError: The database cannot be used.
    """
    with database.reading(root) as connection:
        return [_placed(root, version) for version in read(connection, project)]


def version_of(root: Path, project: str, number: str) -> StoredVersion | None:
    """Return the version with this number; None if there is none, or it was removed."""
    with database.reading(root) as connection:
        rows = read(connection, project, version=number)
    return _placed(root, rows[0]) if rows else None


def challenger_of(root: Path, project: str) -> StoredVersion | None:
    """Return the challenger; None: no version was judged since the last promotion, or it was removed."""
    with database.reading(root) as connection:
        number = registered_models.read(connection, project).challenger
        return version_of(root, project, number) if number is not None else None


def read(connection: Connection, project: str, **columns: str) -> list[StoredVersion]:
    """Return the versions whose columns have these values, oldest first, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import versions

    same = [versions.c[name] == value for name, value in {"project": project, **columns}.items()]
    rows = select(versions).where(*same, versions.c.is_removed.is_(False)).order_by(versions.c.at, versions.c.version)
    return [_version(row) for row in connection.execute(rows).mappings()]


def read_these(connection: Connection, chosen: Sequence[tuple[str, str]]) -> dict[tuple[str, str], RegisteredVersion]:
    """Return versions by project and number, without those that were removed, by a connection."""
    from sqlalchemy import select, tuple_

    from tasks.host.tables import versions

    same = tuple_(versions.c.project, versions.c.version).in_(chosen)
    rows = connection.execute(select(versions).where(same, versions.c.is_removed.is_(False))).mappings()
    return {(row["project"], row["version"]): _version(row).registered for row in rows}


def removed_of(connection: Connection, projects: Sequence[str]) -> dict[str, set[str]]:
    """Return the numbers of the versions of projects that were deleted in MLflow, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import versions

    removed: dict[str, set[str]] = {}
    rows = select(versions.c.project, versions.c.version).where(versions.c.is_removed)
    for project, number in connection.execute(rows.where(versions.c.project.in_(projects))):
        removed.setdefault(project, set()).add(number)
    return removed


def save(connection: Connection, project: str, *stored: StoredVersion) -> None:
    """Insert or update versions, by a connection that writes."""
    from tasks.host.tables import versions

    if stored:
        database.upsert(connection, versions, *(_row(project, version) for version in stored))


def removed(connection: Connection, project: str) -> set[str]:
    """Return the numbers of the versions that were deleted in MLflow, by a connection."""
    return removed_of(connection, [project]).get(project, set())


def withdrawn(connection: Connection, project: str) -> list[StoredVersion]:
    """Return the removed versions of which MLflow still has something, by a connection."""
    from sqlalchemy import select

    from tasks.host.tables import versions

    rows = select(versions).where(versions.c.project == project, versions.c.is_removed)
    stored = [_version(row) for row in connection.execute(rows).mappings()]
    return [version for version in stored if WITHDRAWN in version.tags]


def remove(connection: Connection, project: str, *numbers: str) -> None:
    """Record that versions were deleted in MLflow, by a connection that writes."""
    from tasks.host.tables import versions

    chosen = (versions.c.project == project, versions.c.version.in_(numbers))
    connection.execute(versions.update().where(*chosen).values(is_removed=True))
    known = {version.number for version in read(connection, project)} | removed(connection, project)
    save(connection, project, *(StoredVersion(number, "", "", is_removed=True) for number in {*numbers} - known))


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


def _placed(root: Path, version: StoredVersion) -> StoredVersion:
    return replace(version, place=address_of(root, version.place))


def _version(row: RowMapping) -> StoredVersion:
    return StoredVersion(row["version"], row["run"], row["place"], row["tags"], row["at"], row["is_removed"])
