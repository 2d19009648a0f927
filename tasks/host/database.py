"""The state database of a workspace: SQLite at `.loopline/state.db`, or Postgres by LOOPLINE_STATE_URL.

`tasks/host/tables.py` declares the tables; `tasks/host/migrations/` holds the Alembic migrations. A database of an
older Loopline is migrated when it is first opened; a database of a newer one is refused.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import StoreError, one_line
from models.files import DISK_IS_FULL, storing
from tasks.host import old_schema, sqlite_files
from tasks.host.locks import held
from tasks.host.reconnecting import reconnect
from tasks.host.store_addresses import STATE_URL, normalised, without_password

if TYPE_CHECKING:
    from pydantic import BaseModel
    from sqlalchemy import Column, ColumnElement, Connection, Engine, FromClause, Select, Table

FILE = "state.db"
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
"""The schema's versions, oldest first: the files of `migrations/versions`."""
BUSY_S = 60.0
"""How long a writer waits for the writers before it."""
REST_S = 12.0
"""Postgres ends a writer that does nothing for so long within its transaction: before half a lease (`leases.TTL_S`)."""
_MIGRATIONS = Path(__file__).parent / "migrations"
_WRITER = 0x6C6F6F70  # the key of Postgres' advisory lock
_thread = threading.local()
_DAMAGED = "put it back from a copy, or move it away and lose the history of loops and decisions"
_CURES = {
    "is full": DISK_IS_FULL,
    "lock timeout": f"another process has written for more than {BUSY_S:g} s: run again",
    "idle-in-transaction": f"ended this process's change, which had rested for {REST_S:g} s: run again",
}
"""Errors of Postgres that are no errors of its address."""


@contextlib.contextmanager
def reading(state: Path) -> Iterator[Connection]:
    """Yield a connection that only reads, all from one moment; a workspace without a database reads as empty.

    Within the block, this thread reads by the same connection, so all that it reads is of one moment.

    Args:
        state: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database cannot be used, or a newer Loopline wrote it.
    """
    outer = getattr(_thread, "reading", None)
    if outer and outer[0] == state:
        yield outer[1]
        return
    with _nothing().connect() if is_absent(state) else _begun(state) as connection:
        _thread.reading = (state, connection)
        try:
            yield connection
        finally:
            _thread.reading = outer


@contextlib.contextmanager
def writing(state: Path, *, durable: bool = True) -> Iterator[Connection]:
    """Yield a connection in a transaction that excludes other writers; commit it, or roll it back on an error.

    A transaction that takes a number must exclude others: else numbers are committed out of order, and a reader that
    goes on after the last number passes over a row for ever. Postgres ends the transaction if the process does nothing
    in it for `REST_S`, such as one that is paused: compute first, write after.

    Args:
        state: The workspace's state folder, `.loopline`.
        durable: The change is on the disk on return, which costs some milliseconds; else a loss of power may undo it.

    Raises:
        StoreError: The database cannot be used, or a newer Loopline wrote it.
    """
    with _begun(state, writes=True, durable=durable) as connection:
        yield connection


@contextlib.contextmanager
def updating(state: Path) -> Iterator[Connection]:
    """Yield a connection for one statement that takes no number, such as an update of a row of this process's own.

    With Postgres the statement is a transaction by itself: it waits for no other writer, and there is no moment at
    which a paused process holds up others.

    Args:
        state: The workspace's state folder, `.loopline`.

    Raises:
        StoreError: The database cannot be used, or a newer Loopline wrote it.
    """
    level = {"isolation_level": "AUTOCOMMIT"} if is_shared() else {}
    with _begun(state, writes=True, **level) as connection:
        yield connection


def upsert(connection: Connection, table: Table, *rows: Mapping[str, Any], key_columns: Sequence[str] = ()) -> None:
    """Insert rows, or update those that exist already.

    Args:
        connection: A connection that writes.
        table: The table. An updated row gets a new `number`, if the table has one: it is the newest row then.
        rows: Values by column, all of the same columns; an update leaves other columns as they are.
        key_columns: The columns whose values identify a row, which must be unique; default: the primary key.
    """
    from sqlalchemy.dialects import postgresql, sqlite

    insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    changed = {column.name: column for column in insert.excluded if column.name in {*rows[0], "number"}}
    keys = key_columns or table.primary_key.columns.keys()
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=changed), rows)


def newest(
    order: Column[int], count: int, columns: Sequence[ColumnElement[Any]], **groups: Sequence[str]
) -> Select[Any]:
    """Return the statement for the last `count` rows of each group of a table, newest first.

    Args:
        order: The column of whole numbers > 0 by which a group is ordered; rows without a number are left out.
        count: The number of rows of a group.
        columns: What is read of each row.
        groups: Values by column: every combination is a group.
    """
    from sqlalchemy import JSON, func, literal, select, true

    table = order.table
    # one parameter for all members: the statement of a hundred projects is that of one, and is compiled once
    elements = func.json_array_elements_text if is_shared() else func.json_each
    lists: list[FromClause] = [
        elements(literal([*members], JSON)).table_valued("value", name=f"wanted_{name}")
        for name, members in groups.items()
    ]
    group: FromClause = reduce(lambda joined, another: joined.join(another, true()), lists[1:], lists[0])
    keys = [members.c.value.label(name) for name, members in zip(groups, lists, strict=True)]
    alias = table.alias()
    last = select(alias.c[order.name]).where(*(alias.c[key.name] == key for key in keys))
    last = last.where(alias.c[order.name].is_not(None)).order_by(alias.c[order.name].desc())
    oldest = func.coalesce(last.limit(1).offset(count - 1).correlate(*lists).scalar_subquery(), 0).label("least")
    # `materialized`: else SQLite computes `least` for each row of the table
    firsts = select(*keys, oldest).select_from(group).cte("firsts").prefix_with("materialized")
    same = [table.c[name] == firsts.c[name] for name in groups]
    return select(*columns).where(*same, order >= firsts.c.least).order_by(order.desc())


def text(document: Column[Any]) -> ColumnElement[str]:
    """Return a column of documents as their JSON: a model reads it in a third of the time of the parsed document."""
    from sqlalchemy import Text, cast

    return cast(document, Text).label(document.name)


def plain(model: BaseModel) -> Any:
    """Return a model as plain JSON for a column; numbers that JSON does not know (NaN, infinity) become null."""
    return json.loads(model.model_dump_json())


def address(state: Path) -> str:
    """Return the database's address for SQLAlchemy."""
    named = os.environ.get(STATE_URL)
    return normalised(STATE_URL, named) if named else f"sqlite:///{state / FILE}"


def is_shared() -> bool:
    """Return whether processes of machines without a common disk may use the database."""
    return bool(os.environ.get(STATE_URL))


def now(connection: Connection) -> float:
    """Return the database's time (Unix time, seconds): the same for all machines."""
    from sqlalchemy import select

    return float(connection.scalar(select(clock(connection))) or 0.0)


def current_time(state: Path) -> float:
    """Return the database's time (Unix time, seconds), for what another machine compares with a time of its own."""
    with reading(state) as connection:
        return now(connection)


def clock(connection: Connection) -> ColumnElement[Any]:
    """Return the expression of the database's time (Unix time, seconds) when its statement runs."""
    from sqlalchemy import func, literal

    if connection.dialect.name == "sqlite":
        return literal(time.time())
    return func.extract("epoch", func.clock_timestamp())


def is_absent(state: Path) -> bool:
    """Return whether the workspace has no database yet."""
    return not is_shared() and not (state / FILE).exists()


def stored_revision(state: Path) -> str | None:
    """Return the version of the schema that a database has; None for none, or an empty one. It is not migrated.

    Args:
        state: The workspace's state folder, `.loopline`, or a folder with a copy of its SQLite file, which is opened.

    Raises:
        StoreError: The database cannot be used, a newer Loopline wrote it, or its rows were moved elsewhere.
    """
    if is_absent(state):
        return None
    url = address(state)
    with _converted(url), _engine(url, os.getpid()).begin() as connection:
        revision = _revision(connection)
    _refuse_newer(url, revision)
    return revision


@contextlib.contextmanager
def _begun(state: Path, **options: Any) -> Iterator[Connection]:
    """Yield a connection in a transaction; if the database's schema is not the newest, migrate it first."""
    url, lock = address(state), state / "locks" / "state.lock"
    if not options and not is_shared() and not os.access(state, os.W_OK):  # SQLite would make files beside its own
        url = f"sqlite:///{sqlite_files.read_only(state / FILE)}&uri=true"
    with _converted(url), storing(state):
        if is_absent(state):
            with _alone(lock, url):
                _create(state)
        engine = _engine(url, os.getpid()).execution_options(**options)
        with engine.begin() as connection:
            revision = _revision(connection)
            if revision == REVISIONS[-1]:
                yield connection
                return
        _refuse_newer(url, revision)
        with _alone(lock, url):
            _migrate(engine, revision)
        with engine.begin() as connection:
            yield connection


def make_tables(url: str) -> None:
    """Make our tables in a Postgres database, or migrate those of an older Loopline.

    Raises:
        StoreError: The database cannot be used, or a newer Loopline wrote it.
    """
    with _converted(url):
        engine = _engine(url, os.getpid())
        with engine.begin() as connection:
            revision = _revision(connection)
        _refuse_newer(url, revision)
        if revision != REVISIONS[-1]:
            _migrate(engine, revision)


def _refuse_newer(url: str, revision: str | None) -> None:
    old_schema.refuse_moved(shown(url), revision)
    if revision is not None and revision not in REVISIONS:
        raise StoreError(
            f"{shown(url)}: has schema {revision}, expected {REVISIONS[-1]} or older: a newer Loopline wrote it. "
            "Update this one, and restart what still runs of it (`loopline down`, `loopline up`); nothing was changed"
        )


def _alone(lock: Path, url: str) -> AbstractContextManager[None]:
    return held(lock, lambda: f"{shown(url)}: another process makes or migrates it", BUSY_S)


@functools.cache
def _engine(url: str, pid: int) -> Engine:
    """Return a database's engine, one per process, since connections survive no fork.

    SQLite has no pool of connections: opening one costs less than a millisecond.
    """
    del pid
    from sqlalchemy import NullPool, create_engine, event

    is_sqlite = url.startswith("sqlite")
    if is_sqlite:
        engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_S})
    else:
        engine = create_engine(url, pool_pre_ping=True)
        reconnect(engine)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        if is_sqlite:
            connection.isolation_level = None  # else Python's own module begins transactions, and too late

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if is_sqlite:
            if not options.get("durable", True):
                connection.exec_driver_sql("pragma synchronous = normal")
            connection.exec_driver_sql("begin immediate" if options.get("writes") else "begin")
        elif options.get("isolation_level") == "AUTOCOMMIT":
            return
        elif options.get("writes"):
            connection.exec_driver_sql(f"set local lock_timeout = {round(BUSY_S * 1000)}")
            connection.exec_driver_sql(f"set local idle_in_transaction_session_timeout = {round(REST_S * 1000)}")
            connection.exec_driver_sql(f"select pg_advisory_xact_lock({_WRITER})")
        else:  # else each statement reads what was committed before it
            connection.exec_driver_sql("set transaction isolation level repeatable read")

    return engine


@functools.cache
def _nothing() -> Engine:
    """Return a database in memory with empty tables."""
    from sqlalchemy import StaticPool, create_engine

    from tasks.host.tables import METADATA

    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    METADATA.create_all(engine)
    return engine


def _revision(connection: Connection) -> str | None:
    """Return the version of the schema; None for an empty database."""
    from sqlalchemy.exc import DBAPIError

    try:  # Alembic's own reader takes .1 s to import
        return connection.exec_driver_sql("select version_num from alembic_version").scalar()
    except DBAPIError as error:
        if "alembic_version" not in str(error.orig):
            raise
        return None


def _create(state: Path) -> None:
    """Make an SQLite database beside its place and move it there: no process ever sees it half made."""
    if not is_absent(state):
        return
    temporary = state / f".{FILE}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
    engine = _engine.__wrapped__(f"sqlite:///{temporary}", os.getpid())
    try:
        with contextlib.closing(engine.raw_connection()) as raw:
            raw.cursor().execute("pragma journal_mode = wal")  # readers and the writer do not wait for each other
        _migrate(engine)
        temporary.replace(state / FILE)
    except BaseException:  # such as a full disk
        for path in state.glob(f"{temporary.name}*"):
            path.unlink(missing_ok=True)
        raise


def _migrate(engine: Engine, seen: str | None = None) -> None:
    """Make the tables that the database lacks; another process may have made them since its revision was `seen`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with engine.execution_options(writes=True).begin() as connection:
        if seen is not None and (revision := _revision(connection)) != REVISIONS[-1]:
            old_schema.keep_old(connection, str(revision), REVISIONS[-1])
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextlib.contextmanager
def _converted(url: str) -> Iterator[None]:
    """Convert errors of the database to a StoreError that names the cure."""
    try:
        yield
    except Exception as error:
        from sqlalchemy.exc import DBAPIError

        if not isinstance(error, DBAPIError):
            raise
        text = one_line(error.orig)
        if url.startswith("sqlite"):
            cure = sqlite_files.cure(text, _DAMAGED)
            if cure is None:
                raise
        else:
            otherwise = f"cannot be used ({text}): start it again, or correct {STATE_URL}"
            cure = next((cure for sign, cure in _CURES.items() if sign in text), otherwise)
        raise StoreError(f"{shown(url)}: {cure}") from error


def shown(url: str) -> str:
    """Return an address for a message: the file of SQLite, or the address without its password."""
    if not url.startswith("sqlite"):
        return without_password(url)
    return url.removeprefix("sqlite:///").removeprefix("file://").partition("?")[0]
