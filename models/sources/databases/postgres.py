"""Postgres by ADBC: rows come by binary COPY, numerics as texts of all their digits."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from models.errors import DataError
from models.sources.databases import adbc, database
from models.sources.databases.database import BATCH_ROWS, CONNECT_S, Database, double_quoted
from models.sources.databases.plain_types import decimal_type, plain, refused
from models.sources.read import refuse_shared_names

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection

_AS_TEXT = {"uuid", "json", "jsonb"}
_PARTS = {
    "interval": "extract(epoch from {name})",
    "money": "{name}::numeric",
    "oid": "{name}::bigint",
}
"""What stands for types that ADBC would give as another number, or that are none."""
_TYPE, _MODIFIER = b"POSTGRESQL:type", b"POSTGRESQL:typmod"


class PostgresSession:
    """A transaction of Postgres that sees one moment."""

    def __init__(self, connection: AdbcConnection) -> None:
        self._connection = connection

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query; numerics without a declared size are asked for the digits that they need."""
        declared = adbc.schema_of(self._connection, sql)
        refuse_shared_names(declared.names, "the query")
        return pa.schema([self._field(field, sql) for field in declared])

    def batches(self, sql: str, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Yield the rows of a query as they come."""
        declared = adbc.schema_of(self._connection, sql)
        columns = ", ".join(
            f"{name}::text as {name}" if _type_of(field) in _AS_TEXT else name
            for field in declared
            for name in [double_quoted(field.name)]
        )
        self._limit(database.READ_S)
        with adbc.reader_of(self._connection, f"select {columns} from ({sql}\n) as q") as rows:
            for batch in rows:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield plain(batch.slice(start, BATCH_ROWS), schema)

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        self._limit(database.QUESTION_S)
        return adbc.row_of(self._connection, sql)

    def _limit(self, timeout_s: float) -> None:
        adbc.run(self._connection, f"set local statement_timeout = {int(timeout_s * 1000)}")

    def _field(self, field: pa.Field, sql: str) -> pa.Field:
        declared, name = _type_of(field), double_quoted(field.name)
        if declared in _AS_TEXT:
            return pa.field(field.name, pa.string())
        if declared in _PARTS:
            raise refused(field.name, declared, _PARTS[declared].format(name=name))
        if field.metadata and field.metadata.get(_TYPE) == b"numeric":
            return pa.field(field.name, self._decimal(field, sql))
        if isinstance(field.type, pa.BaseExtensionType):
            raise refused(field.name, declared, f"{name}::text")
        return pa.field(field.name, field.type)

    def _decimal(self, field: pa.Field, sql: str) -> pa.DataType:
        modifier = int((field.metadata or {}).get(_MODIFIER, b"-1")) - 4
        kind = decimal_type(modifier >> 16, modifier & 0x7FF) if modifier >= 0 else None
        if kind is not None:
            return kind
        name = double_quoted(field.name)
        scale, whole = self.row(
            f"select max(scale({name})), max(length(trunc(abs({name}))::text)) from ({sql}\n) as q "
            f"where {name} not in ('NaN', 'Infinity', '-Infinity')"
        )
        kind = decimal_type((whole or 1) + (scale or 0), scale or 0)
        if kind is None:
            raise DataError(
                f"column {field.name!r} has numerics of {whole + scale} digits, expected 76 at most: write "
                f"{name}::numeric(38, 10) or {name}::float8 in the query"
            )
        return kind


@contextlib.contextmanager
def connect(url: str, base: Path) -> Iterator[PostgresSession]:
    """Open a transaction that only reads, of one moment, on a server."""
    del base
    import adbc_driver_postgresql as driver

    if "connect_timeout" not in url:
        url += f"{'&' if '?' in url else '?'}connect_timeout={CONNECT_S}"
    address = "postgresql://" + url.partition("://")[2]
    with adbc.connected(driver.connect(address)) as connection:
        adbc.run(connection, "set transaction isolation level repeatable read, read only")
        yield PostgresSession(connection)


def digest(names: list[str]) -> str:
    """Return what is asked of all rows: one scan of the server, in any order."""
    del names
    return "select count(*), coalesce(sum(hashtextextended(q::text, 0)), 0)::text from ({sql}\n) as q"


def _type_of(field: pa.Field) -> str:
    return str((field.metadata or {}).get(_TYPE, b"").decode())


_TABLES = """
select n.nspname::text as folder, c.relname::text as name, pg_table_is_visible(c.oid) as is_default,
    c.relkind = 'v' as is_view,
    case when c.relkind <> 'v' and c.reltuples >= 0 then c.reltuples::bigint end as num_rows,
    (select count(*) from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as num_columns
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition and n.nspname <> 'information_schema'
    and n.nspname !~ '^pg_' and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')"""
POSTGRES = Database(
    library="adbc_driver_postgresql",
    connect=connect,
    quote=double_quoted,
    digest=digest,
    tables=_TABLES,
    random="random()",
)
