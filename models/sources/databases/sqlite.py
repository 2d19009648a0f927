"""SQLite by ADBC: types are those of the first rows, since a column may hold any."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from models.errors import DataError
from models.sources.databases import adbc
from models.sources.databases.database import BATCH_ROWS, Database, double_quoted, existing_file, file_of
from models.sources.databases.plain_types import plain
from models.sources.read import refuse_shared_names

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection

_BATCHES = {"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
_MISFIT = re.compile(r"Type mismatch in column (\d+): expected (\w+) but got (\S+)")
_WORDS = {"INT64": "whole numbers", "DOUBLE": "numbers", "BINARY": "bytes"}


class SqliteSession:
    """A transaction of SQLite that sees one moment."""

    def __init__(self, connection: AdbcConnection) -> None:
        self._connection = connection

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query, as its first rows are."""
        with adbc.reader_of(self._connection, sql, **_BATCHES) as rows:
            refuse_shared_names(rows.schema.names, "the query")
        with adbc.reader_of(self._connection, _wrapped(sql), **_BATCHES) as rows:
            return rows.schema

    def batches(self, sql: str, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Yield the rows of a query as they come."""
        with adbc.reader_of(self._connection, _wrapped(sql), **_BATCHES) as rows:
            try:
                for batch in rows:
                    yield plain(batch, schema)
            except OSError as error:
                if (match := _MISFIT.search(str(error))) is None:
                    raise
                name = schema.names[int(match[1])]
                cast = "real" if match[3].startswith(("DOUBLE", "FLOAT")) else "text"
                first = _WORDS.get(match[2], match[2].lower())
                raise DataError(
                    f"column {name!r} holds {match[3].lower()} behind rows of {first}: write "
                    f"cast({double_quoted(name)} as {cast}) as {double_quoted(name)} in the query"
                ) from error

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        return adbc.row_of(self._connection, sql)


def _wrapped(sql: str) -> str:
    """Return a query that no other statement can be: what writes, or several statements, is a syntax error."""
    return f"select * from ({sql}\n) as q"


@contextlib.contextmanager
def connect(url: str, base: Path) -> Iterator[SqliteSession]:
    """Open a file for reading alone."""
    import adbc_driver_sqlite as driver

    path = existing_file(url, base)
    with adbc.connected(driver.connect(f"file:{quote(str(path))}?mode=ro")) as connection:
        yield SqliteSession(connection)


_TABLES = r"""
select '' as folder, name, 1 as is_default, type = 'view' as is_view, null as num_rows,
    case type when 'table' then (select count(*) from pragma_table_info(m.name)) end as num_columns
from sqlite_master m where type in ('table', 'view') and name not like 'sqlite\_%' escape '\'"""
SQLITE = Database(
    library="adbc_driver_sqlite",
    connect=connect,
    quote=double_quoted,
    digest=lambda names: "",
    tables=_TABLES,
    random="(random() / 18446744073709551616.0 + 0.5)",
    file=file_of,
)
