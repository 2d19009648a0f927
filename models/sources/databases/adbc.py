"""Connections of ADBC by its handles: its module for DB-API imports pandas, which takes half a second of CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection, AdbcDatabase, AdbcStatement

Answer = TypeVar("Answer")


@contextlib.contextmanager
def connected(database: AdbcDatabase) -> Iterator[AdbcConnection]:
    """Open a connection, in a transaction, and close it and its database."""
    from adbc_driver_manager import AdbcConnection

    with database, AdbcConnection(database) as connection:
        connection.set_autocommit(False)
        yield connection


@contextlib.contextmanager
def reader_of(connection: AdbcConnection, sql: str, **options: str) -> Iterator[pa.RecordBatchReader]:
    """Run a query; yield its rows as they come. `options` are those of the driver's statement."""
    with (
        _statement(connection, sql, options) as statement,
        _interruptible(statement, lambda: _reader(statement)) as reader,
    ):
        yield reader


def row_of(connection: AdbcConnection, sql: str, **options: str) -> tuple[Any, ...]:
    """Return the first row of a query."""
    with _statement(connection, sql, options) as statement:
        batch = _interruptible(statement, lambda: _first_batch(statement))
        return tuple(column[0].as_py() for column in batch.columns)


def schema_of(connection: AdbcConnection, sql: str) -> pa.Schema:
    """Return the columns of a query, which is not run."""
    with _statement(connection, sql, {}) as statement:
        return pa.schema(_interruptible(statement, statement.execute_schema))


def run(connection: AdbcConnection, sql: str) -> None:
    """Run a statement that has no rows."""
    with _statement(connection, sql, {}) as statement:
        statement.execute_update()


@contextlib.contextmanager
def _statement(connection: AdbcConnection, sql: str, options: dict[str, str]) -> Iterator[AdbcStatement]:
    from adbc_driver_manager import AdbcStatement

    with AdbcStatement(connection) as statement:
        statement.set_options(**options)
        statement.set_sql_query(sql)
        yield statement


def _reader(statement: AdbcStatement) -> pa.RecordBatchReader:
    handle, _ = statement.execute_query()
    return pa.RecordBatchReader.from_stream(handle)


def _first_batch(statement: AdbcStatement) -> pa.RecordBatch:
    with _reader(statement) as reader:
        return next(batch for batch in reader if batch.num_rows)


def _interruptible(statement: AdbcStatement, call: Callable[[], Answer]) -> Answer:
    """Return what a call of a driver returns; a signal that ends the program ends the call too."""
    from adbc_driver_manager import NotSupportedError

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(call)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                with contextlib.suppress(NotSupportedError):  # as by SQLite
                    statement.cancel()
            raise
