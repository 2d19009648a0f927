"""The query that a new project reads: a table that is named behind the address of a database, or SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from models.errors import UsageError
from models.project_spec.data import SqlQuery
from models.sources.address import expanded
from models.sources.databases.database import Database, OpenDatabase
from models.sources.databases.databases import DATABASES, database_of, opened
from models.sources.databases.tables import DatabaseTable, counted, sample_of_query, table_named, tables_of
from models.sources.sample import TableSample


class UnnamedTableError(UsageError):
    """A database has several tables, and none is named."""

    def __init__(self, message: str, tables: Sequence[DatabaseTable]) -> None:
        super().__init__(message)
        self.tables = tables


class QueryOrigin(NamedTuple):
    """A query as a spec names it, and a sample of its rows."""

    query: SqlQuery
    sample: TableSample


def is_database(text: str) -> bool:
    """Return whether a text begins with the address of a database, or with a variable that holds one.

    Raises:
        UsageError: The variable is not set.
    """
    address = text.partition("#")[0]
    url = expanded(address) if address.startswith("${") else address
    return "://" in url and url.partition("://")[0].partition("+")[0].lower() in DATABASES


def query_origin(text: str, sql: str | None, base: Path) -> QueryOrigin:
    """Return the query of `ADDRESS#TABLE`, or of an address and SQL, with a sample of its rows.

    The only table of a database need not be named.

    Args:
        text: The address, with or without a table.
        sql: The query, if no table is named.
        base: The folder to which the file of an address is relative.

    Raises:
        UnnamedTableError: There are several tables, and none is named.
        UsageError: There is no such table, the address holds a password, or a variable is not set.
        StoreError: The database cannot be reached.
        DataError: It refuses the query, or a column of it cannot be read.
    """
    address, _, table = text.partition("#")
    if sql is not None and table:
        raise UsageError(f"--sql: got a query and the table {table!r}: leave one of them out")
    address = _spec_address(address, base)
    with opened(address, base, address) as (database, session):
        query = _query(sql or _named(address, table, database, session).select(database), address)
        sample = sample_of_query(database, session, query.sql)
    if not sample.table.num_rows:
        raise UsageError(f"--from: {query.summary}: there are no rows, expected at least ten: wait for some")
    return QueryOrigin(query, sample)


def _named(address: str, table: str, database: Database, session: OpenDatabase) -> DatabaseTable:
    tables = tables_of(database, session)
    if not tables:
        raise UsageError(
            f"--from: {address} has no table that its user may read: correct the address, or grant it select"
        )
    if table:
        return table_named(table, tables)
    if len(tables) == 1:
        return tables[0]
    example = f"--from '{address}#{tables[0].text}'"
    raise UnnamedTableError(
        f"--from: {address} has {len(tables)} tables: name one, as in {example}, or give --sql",
        counted(tables, database, session),
    )


def _spec_address(address: str, base: Path) -> str:
    """Return the value of `data.source.at`: a file is named by its whole path, since a spec lies elsewhere.

    Raises:
        UsageError: It holds a password, or a variable of it names a file by a relative path.
    """
    _query("select 1", address)
    url = expanded(address)
    database = database_of(url, address)
    file = database.file(url, base)
    if file is None or file == database.file(url, base / "elsewhere"):
        return address
    scheme = url.partition("://")[0]
    if "${" in address:
        raise UsageError(
            f"--from: {address} names a file by a relative path: write the whole one, as {scheme}:///{file}"
        )
    return f"{scheme}:///{file.absolute()}"


def _query(sql: str, address: str) -> SqlQuery:
    """Return a query as a spec holds it.

    Raises:
        UsageError: As the spec refuses it; a password is not told.
    """
    try:
        return SqlQuery(sql=sql, at=address)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        option = "--sql" if first["loc"] == ("sql",) else "--from"
        message = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(f"{option}: {message}") from None
