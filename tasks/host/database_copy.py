"""Copies all rows of an SQLite database into the same tables of a Postgres database, in one transaction.

The tables must exist: the program that owns them makes them. A comment on the table `alembic_version`, written in the
same transaction, says what was copied: so a second copy of the same rows is known as such.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import JSON, ColumnElement, MetaData, NullPool, Text, cast, column, create_engine, func, inspect, select
from sqlalchemy import table as named
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SAWarning, StatementError
from sqlalchemy.schema import AddConstraint, DropConstraint
from sqlalchemy.types import NULLTYPE

from models.errors import StoreError, one_line
from tasks.host import old_schema, sqlite_files
from tasks.host.database import shown
from tasks.host.store_addresses import without_password

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table
    from sqlalchemy.engine import URL

BATCH = 1000
MARK = "loopline migrate"
_VERSIONS = ("alembic_version", "version_info")
"""Tables with versions of the schema, which the owner of the tables writes."""
_LOCK = 0x6D696772  # the key of Postgres' advisory lock


@dataclass(frozen=True)
class Contents:
    """What a database holds: rows by table, without empty tables, and a hash of all rows."""

    rows: dict[str, int]
    sha256: str

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())


def contents_of(source: Path) -> Contents:
    """Return what an SQLite database holds.

    Raises:
        StoreError: The file cannot be read as a database.
    """
    with _snapshot(source) as connection:
        return _contents(connection)


def databases_at(server: URL) -> set[str]:
    """Return the names of the databases of a Postgres server.

    Raises:
        StoreError: The server cannot be reached, or refuses the user.
    """
    for name in ("postgres", server.database):  # the first one is there by default, and may be forbidden
        try:
            with writing_to(server.set(database=name)) as connection:
                return set(connection.exec_driver_sql("select datname from pg_database").scalars())
        except StoreError as error:
            failure = error
    raise failure


def create_database(server: URL, name: str) -> None:
    """Make an empty database.

    Raises:
        StoreError: The user may not make databases.
    """
    engine = _engine(server.set(database="postgres")).execution_options(isolation_level="AUTOCOMMIT")
    quoted = engine.dialect.identifier_preparer.quote(name)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"create database {quoted}")
    except DBAPIError as error:
        reason = one_line(error.orig)
        owner = f' owner "{server.username}"' if server.username else ""
        raise StoreError(
            f"{name}: cannot be made ({reason}): let a person who may make databases run "
            f"`create database {quoted}{owner}`"
        ) from error


def refuse_without_rights(target: URL) -> None:
    """Refuse a database in which the user may not make tables, before anything is made or copied.

    Raises:
        StoreError: The user may not, or the database cannot be used.
    """
    with writing_to(target) as connection:
        may = connection.exec_driver_sql("select has_schema_privilege(current_schema(), 'create')").scalar()
        user = connection.exec_driver_sql("select quote_ident(current_user)").scalar()
    if not may:
        raise StoreError(
            f"{without_password(str(target))}: {user} may not make tables in it: let its owner run "
            f"`grant create, usage on schema public to {user}`; nothing was changed"
        )


def rows_at(target: URL) -> dict[str, int]:
    """Return the number of rows of each table that has some, without tables of versions.

    Raises:
        StoreError: The database cannot be used.
    """
    with writing_to(target) as connection:
        return _rows(connection)


def mark_at(target: URL) -> Contents | None:
    """Return what was copied into a database, or None if nothing was.

    Raises:
        StoreError: The database cannot be used.
    """
    with writing_to(target) as connection:
        text = connection.exec_driver_sql("select obj_description(to_regclass('alembic_version'), 'pg_class')").scalar()
    with contextlib.suppress(ValueError, TypeError, KeyError):  # a comment of others
        return Contents(**json.loads(text or "")[MARK])
    return None


def copy_rows(source: Path, target: URL, contents: Contents, seeds: Mapping[str, int]) -> None:
    """Copy all rows in one transaction: a kill, or an error, leaves the target as it was.

    Args:
        source: An SQLite file, which is only read.
        target: A Postgres database with the same tables, empty but for seeds.
        contents: What the source holds.
        seeds: Numbers of rows that the tables' owner writes into new tables; they are replaced.

    Raises:
        StoreError: The source changed meanwhile, the target has other tables or columns, or other rows.
    """
    with _snapshot(source) as read, writing_to(target) as write:
        write.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
        write.exec_driver_sql("set local time zone 'UTC'")  # SQLite has no zones: its times are in UTC
        if _contents(read) != contents:
            raise StoreError(f"{source}: was changed meanwhile: nothing was copied, run again")
        if is_more(_rows(write), seeds):
            raise StoreError(f"{shown(str(target))}: another process has written rows there: nothing was copied")
        tables = _same_tables(read, write, shown(str(target)))
        keys = [key for table in tables for key in table.foreign_key_constraints]
        for key in keys:  # tables may refer to each other in a circle
            write.execute(DropConstraint(key))
        for table in tables:
            write.execute(table.delete())
            with _fitting(f"{source}: table {table.name}"):
                _copy_table(read, write, table)
        for key in keys:
            write.execute(AddConstraint(key))
        if _rows(write) != contents.rows:
            raise StoreError(f"{shown(str(target))}: has other numbers of rows than {source}: nothing was copied")
        _set_sequences(write, tables)
        mark = json.dumps({MARK: asdict(contents)}).replace("'", "''")
        write.exec_driver_sql(f"comment on table alembic_version is '{mark}'")


def mark_moved(source: Path, contents: Contents, address: str) -> None:
    """Mark the file of the state database as moved: who does not name the new address is refused from now on.

    Args:
        source: The file.
        contents: What was copied of it.
        address: Where its rows are now, without a password.

    Raises:
        StoreError: The file has changed since its rows were copied.
    """
    engine = create_engine(f"sqlite:///{source}", poolclass=NullPool, connect_args={"isolation_level": None})
    with engine.connect() as connection:
        connection.exec_driver_sql("begin immediate")  # nobody writes between the look and the mark
        if _contents(connection) != contents:
            raise StoreError(
                f"{source}: was changed after it was copied, as by `loopline promote`: drop the databases of "
                f"{address} and run again"
            )
        old_schema.mark_moved(connection, address)
        connection.exec_driver_sql("commit")


def is_more(rows: Mapping[str, int], seeds: Mapping[str, int]) -> bool:
    """Return whether a database has other rows than seeds."""
    return any(number > seeds.get(table, 0) for table, number in rows.items())


def _same_tables(read: Connection, write: Connection, where: str) -> list[Table]:
    """Return the target's tables, which must be those of the source."""
    metadata = MetaData()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # of indexes on expressions
        metadata.reflect(write)
    theirs = {
        name: {column["name"] for column in columns} for (_, name), columns in inspect(read).get_multi_columns().items()
    }
    ours = {name: set(table.columns.keys()) for name, table in metadata.tables.items()}
    if theirs != ours:
        different = sorted(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
        raise StoreError(
            f"{where}: has other tables or columns than the file here ({', '.join(different)}): another version of the "
            "tool made one of them; run a loop here to update the file, or name an empty database. Nothing was copied"
        )
    return [table for name, table in metadata.tables.items() if name not in _VERSIONS]


def _copy_table(read: Connection, write: Connection, table: Table) -> None:
    """Copy a table's rows; the target's types, made general, say how SQLite's values are to be read.

    JSON stays the text that it is: SQL's NULL and the null of JSON are not the same. SQLite stores a number of JSON as
    a number.
    """
    written = [stored for stored in table.columns if stored.computed is None]
    columns: list[ColumnElement[Any]] = []
    for stored in written:
        if isinstance(stored.type, JSON):
            stored.type = NULLTYPE
            columns.append(cast(column(stored.name), Text).label(stored.name))
        else:
            columns.append(column(stored.name, stored.type.as_generic(allow_nulltype=True)))
    rows = read.execution_options(yield_per=BATCH).execute(select(*columns).select_from(named(table.name)))
    for batch in rows.mappings().partitions():
        write.execute(table.insert(), [dict(row) for row in batch])


@contextlib.contextmanager
def _fitting(where: str) -> Iterator[None]:
    """Convert errors of values to a StoreError: SQLite stores any value in any column."""
    try:
        yield
    except (StatementError, ValueError, LookupError) as error:
        if isinstance(error, StatementError) and not isinstance(error, DataError | IntegrityError):
            raise
        reason = one_line(getattr(error, "orig", error))
        raise StoreError(
            f"{where}: a row cannot be stored in Postgres ({reason}): correct or delete it; nothing was copied"
        ) from error


def _set_sequences(connection: Connection, tables: list[Table]) -> None:
    """Let the next number of each table come after those that were copied."""
    for table in tables:
        if table.autoincrement_column is not None:
            name = connection.dialect.identifier_preparer.format_table(table)
            sequence = func.pg_get_serial_sequence(name, table.autoincrement_column.name)
            connection.execute(select(func.setval(sequence, func.max(table.autoincrement_column))))


def _contents(connection: Connection) -> Contents:
    digest = hashlib.sha256()
    rows: dict[str, int] = {}
    for table in _names(connection):
        digest.update(table.encode())
        for row in connection.exec_driver_sql(f'select * from "{table}"'):  # noqa: S608 - its own names
            rows[table] = rows.get(table, 0) + 1
            digest.update(repr(tuple(row)).encode())
    return Contents(rows, digest.hexdigest())


def _rows(connection: Connection) -> dict[str, int]:
    numbers = {
        table: connection.exec_driver_sql(f'select count(*) from "{table}"').scalar() or 0  # noqa: S608
        for table in _names(connection)
    }
    return {table: number for table, number in numbers.items() if number}


def _names(connection: Connection) -> list[str]:
    return sorted(set(inspect(connection).get_table_names()) - set(_VERSIONS))


@contextlib.contextmanager
def _snapshot(source: Path) -> Iterator[Connection]:
    """Yield a connection that only reads a file of SQLite, all from one moment."""
    url = f"sqlite:///{sqlite_files.read_only(source)}&uri=true"
    engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None})
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("begin")
            yield connection
    except DBAPIError as error:
        if not isinstance(error.orig, sqlite3.Error):
            raise
        raise sqlite_files.store_error(source, error.orig, "put it back from a copy") from error


@contextlib.contextmanager
def writing_to(url: URL) -> Iterator[Connection]:
    """Yield a connection to a database of the server, for one transaction.

    Raises:
        StoreError: It cannot be used, or does not take a row.
    """
    try:
        with _engine(url).begin() as connection:
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise
        reason = one_line(error.orig)
        cure = "start it, or correct the address"
        if isinstance(error, IntegrityError):
            cure = "correct or delete this row in the file here"
        where = without_password(str(url))
        raise StoreError(f"{where}: cannot be used ({reason}): {cure}; nothing was copied") from error


def _engine(url: URL) -> Engine:
    return create_engine(url, poolclass=NullPool)
