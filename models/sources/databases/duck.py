"""DuckDB by itself: no extension is loaded or fetched, and a query reads this file alone."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from models.errors import DataError
from models.sources.databases.database import BATCH_ROWS, Database, double_quoted, existing_file, file_of
from models.sources.databases.plain_types import plain, refused
from models.sources.read import refuse_shared_names

CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
"""The settings of a DuckDB that loads nothing, and reads no file but its own."""
_LIMITED: dict[str, str | bool | int | float | list[str]] = {
    **CLOSED,
    "lock_configuration": "true",
    "threads": "2",
    "memory_limit": "512MB",
}
_PARTS = {
    "INTERVAL": "epoch({name})",
    "BIT": "{name}::varchar",
    "BIGNUM": "{name}::varchar",
    "TIME WITH TIME ZONE": "{name}::varchar",
}


class DuckSession:
    """A transaction of DuckDB that sees one moment."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query."""
        if len(self._connection.extract_statements(sql)) != 1:
            raise DataError("the query holds several statements, expected one: remove the others")
        refuse_shared_names(self._connection.sql(sql).columns, "the query")
        rows = self._rows(sql)
        for name, kind in zip(rows.columns, map(str, rows.types), strict=True):
            if kind in _PARTS:
                quoted = double_quoted(name)
                raise refused(name, kind, _PARTS[kind].format(name=quoted))
        schema = rows.limit(0).to_arrow_table().schema
        return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])

    def batches(self, sql: str, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Yield the rows of a query as they come."""
        with self._rows(sql).to_arrow_reader(BATCH_ROWS) as reader:
            for batch in reader:
                yield plain(batch, schema)

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        (row,) = self._connection.execute(sql).fetchall()  # an unfinished result would bar the next query
        return tuple(row)

    def _rows(self, sql: str) -> Any:
        return self._connection.sql(f"select * from ({sql}\n) as q")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    return pa.string() if pa.types.is_null(kind) else kind


@contextlib.contextmanager
def connect(url: str, base: Path) -> Iterator[DuckSession]:
    """Open a file for reading alone."""
    import duckdb

    with duckdb.connect(existing_file(url, base), read_only=True, config=_LIMITED) as connection:
        connection.begin()
        yield DuckSession(connection)


_TABLES = """
select schema_name as folder, name, schema_name = current_schema() as is_default, is_view, num_rows, num_columns
from (select schema_name, table_name as name, false as is_view, estimated_size as num_rows, column_count as num_columns
    from duckdb_tables() where database_name = current_database() and not internal
    union all select schema_name, view_name, true, null, column_count
    from duckdb_views() where database_name = current_database() and not internal)"""
DUCKDB = Database(
    library="duckdb",
    connect=connect,
    quote=double_quoted,
    digest=lambda names: "",
    tables=_TABLES,
    random="random()",
    file=file_of,
)
