"""The way back from a change of the state database: a copy before a migration, a mark after the move to Postgres."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import StoreError
from tasks.host import sqlite_files
from tasks.host.store_addresses import STATE_URL, without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection

DUMPED = "LOOPLINE_DUMPED"
"""The variable by which a person says that Postgres was dumped before the migration to this revision."""
_MOVED = re.compile(r"moved from (?P<revision>\w+) to (?P<address>.+)")


def keep_old(connection: Connection, before: str, after: str) -> None:
    """Keep an SQLite database as a file beside it, or ask for a dump of Postgres, before its schema changes.

    Args:
        connection: A connection in the transaction of the migration, which has changed nothing yet: nobody else writes.
        before: The revision of the schema.
        after: The revision to which it will be migrated.

    Raises:
        StoreError: Nobody has said that Postgres was dumped.
    """
    url = connection.engine.url
    if connection.dialect.name == "sqlite":
        _copy(Path(str(url.database)), after)
    elif os.environ.get(DUMPED) != after:
        raise StoreError(
            f"{without_password(str(url))}: has schema {before}, and this Loopline migrates it to {after}, which an "
            f"older one cannot read: make a dump (`pg_dump --file before-{after}.sql {url.database}`), then say so: "
            f"`{DUMPED}={after} loopline doctor`; nothing was changed"
        )


def _copy(file: Path, after: str) -> None:
    """Copy what was committed, with SQLite's write-ahead log; a copy of an earlier try is replaced as a whole."""
    copy = file.with_name(f"{file.name}.before-{after}")
    temporary = file.with_name(f".{copy.name}.tmp")
    try:
        with (
            contextlib.closing(sqlite3.connect(sqlite_files.read_only(file), uri=True)) as stored,
            contextlib.closing(sqlite3.connect(temporary)) as written,
        ):
            stored.backup(written)
    except sqlite3.Error as error:
        raise sqlite_files.store_error(f"{copy}: cannot be written", error, "look at the system log") from error
    temporary.replace(copy)


def mark_moved(connection: Connection, address: str) -> None:
    """Mark an SQLite database as moved, as a revision of its schema that every Loopline refuses, the older too.

    Args:
        connection: A connection that writes to it.
        address: Where its rows are from now on, without a password.
    """
    revision = connection.exec_driver_sql("select version_num from alembic_version").scalar()
    connection.exec_driver_sql("update alembic_version set version_num = ?", (f"moved from {revision} to {address}",))


def moved_to(file: Path) -> str:
    """Return the address to which the rows of an SQLite database were moved; empty if they were not.

    Raises:
        StoreError: The file cannot be read.
    """
    if not file.exists():
        return ""
    with _opened(file) as raw:
        return _moved(_revision(raw))[1]


def take_back(file: Path) -> str:
    """Remove the mark: the file is used again, with the rows that it had at the move.

    Returns:
        The address to which it was moved.

    Raises:
        StoreError: The file cannot be written, or was not moved.
    """
    with _opened(file) as raw:
        revision, address = _moved(_revision(raw))
        if not address:
            raise StoreError(f"{file}: was not moved to Postgres: nothing is to be taken back")
        raw.execute("update alembic_version set version_num = ?", (revision,))
    return address


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as raw, raw:
            yield raw
    except sqlite3.Error as error:
        raise sqlite_files.store_error(file, error, "put it back from a copy") from error


def _revision(raw: sqlite3.Connection) -> str:
    is_made = raw.execute("select 1 from sqlite_master where name = 'alembic_version'").fetchone()
    row = raw.execute("select version_num from alembic_version").fetchone() if is_made else None
    return str(row[0]) if row else ""


def _moved(revision: str) -> tuple[str, str]:
    """Return the revision before the move, and the address to which the rows were moved; empty if they were not."""
    mark = _MOVED.fullmatch(revision)
    return (mark["revision"], mark["address"]) if mark else (revision, "")


def refuse_moved(file: str, revision: str | None) -> None:
    """Refuse an SQLite database whose rows were moved to Postgres.

    Raises:
        StoreError: They were.
    """
    _, address = _moved(revision or "")
    if address:
        raise StoreError(
            f"{file}: `loopline migrate` moved it to {address}: set {STATE_URL} to that address, or use the file again "
            "as it was then (`loopline migrate --back`); nothing was changed"
        )
