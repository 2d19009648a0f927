"""MySQL and MariaDB by PyMySQL: the server writes each row as a line of CSV, which Arrow reads by the declared types.

Cost: a third of what PyMySQL takes to make a Python value of each cell (decision 119).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa
import pyarrow.csv

from models.errors import DataError
from models.sources.databases import database
from models.sources.databases.database import BATCH_ROWS, CONNECT_S, Database
from models.sources.databases.plain_types import decimal_type, plain, refused

_BIG, _FLOAT, _DECIMAL = 8, 4, 246
_TYPES = {
    **dict.fromkeys((1, 2, 3, 9, 13), pa.int64()),
    _BIG: pa.int64(),
    _FLOAT: pa.float32(),
    5: pa.float64(),
    6: pa.string(),
    7: pa.timestamp("us", "UTC"),
    10: pa.date32(),
    12: pa.timestamp("us"),
    16: pa.uint64(),
    245: pa.string(),
    **dict.fromkeys((15, 247, 248, 249, 250, 251, 252, 253, 254), pa.string()),
}
"""Of the types of MySQL's protocol; the numbers are its own."""
_PARTS = {11: ("time", "time_to_sec({name})"), 255: ("geometry", "st_astext({name})")}
"""The character set of bytes."""
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
"""The arguments of an address."""


_CELL = re.compile(r"In CSV column #(\d+): .*conversion error to (.+?): invalid value ('.*')")


class _Column(NamedTuple):
    name: str
    code: int
    scale: int
    length: int


def quoted(name: str) -> str:
    """Return the name of a column as MySQL writes it."""
    return "`" + name.replace("`", "``") + "`"


class MysqlSession:
    """A transaction of MySQL or MariaDB that sees one moment."""

    def __init__(self, connection: Any) -> None:
        from pymysql.cursors import Cursor

        self._connection = connection
        self._questions = connection.cursor(Cursor)
        self._is_mariadb = "MariaDB" in str(self._first("select version()")[0])
        self._questions.execute("set session transaction read only")
        self._questions.execute("start transaction with consistent snapshot, read only")

    def schema(self, sql: str) -> pa.Schema:
        """Return the columns of a query, with their declared types."""
        rows = f"from ({sql}\n) as q"
        self._questions.execute(f"select * {rows} limit 0")
        columns = [_Column(text[0], text[1], text[5], text[4]) for text in self._questions.description]
        big = [column.name for column in columns if column.code == _BIG]
        strings = [column.name for column in columns if _TYPES.get(column.code) == pa.string()]
        unsigned: set[str] = set()
        if big:  # beside a negative number an unsigned one is a decimal
            self._questions.execute(
                f"select {', '.join(f'coalesce({quoted(name)}, -1)' for name in big)} {rows} limit 0"
            )
            kinds = [text[1] for text in self._questions.description]
            unsigned = {name for name, kind in zip(big, kinds, strict=True) if kind == _DECIMAL}
        binary: set[str] = set()
        if strings:
            sets = self._first(f"select {', '.join(map(_is_binary, strings))} {rows} limit 1")
            binary = {name for name, is_binary in zip(strings, sets, strict=False) if is_binary}
        return pa.schema([_field(column, column.name in unsigned, column.name in binary) for column in columns])

    def batches(self, sql: str, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        """Yield the rows of a query as they come."""
        cells = ", ".join(map(_cell, schema))
        self._limit(database.READ_S)
        with contextlib.closing(self._connection.cursor()) as cursor:
            cursor.execute(f"select cast(concat_ws(',', {cells}) as binary) from ({sql}\n) as q")
            while rows := cursor.fetchmany(BATCH_ROWS):
                lines = [line for (line,) in rows]
                if None in lines:
                    raise DataError(
                        "a row is longer than the server's max_allowed_packet: raise it, or leave a column out"
                    )
                yield from rows_of_lines(b"\n".join(lines) + b"\n", schema)

    def row(self, sql: str) -> tuple[Any, ...]:
        """Return the one row of a query."""
        self._limit(database.QUESTION_S)
        return self._first(sql)

    def _first(self, sql: str) -> tuple[Any, ...]:
        self._questions.execute(sql)
        return tuple((self._questions.fetchall() or [()])[0])

    def _limit(self, timeout_s: float) -> None:
        milliseconds = int(timeout_s * 1000)
        limit = f"max_statement_time = {timeout_s}" if self._is_mariadb else f"max_execution_time = {milliseconds}"
        self._questions.execute(f"set session {limit}")


def _field(column: _Column, is_unsigned: bool, is_binary: bool) -> pa.Field:
    if column.code in _PARTS:
        word, cast = _PARTS[column.code]
        raise refused(column.name, word, cast.format(name=quoted(column.name)))
    kind = _TYPES.get(column.code)
    if column.code == _DECIMAL:
        digits = column.length - (column.scale > 0)  # and a place for the sign, if it has one
        kind = decimal_type(38 if digits == 39 else digits, column.scale)
    if kind is None:
        raise refused(column.name, f"of type {column.code}", f"cast({quoted(column.name)} as char)")
    kind = pa.uint64() if is_unsigned else pa.binary() if is_binary else kind
    return pa.field(column.name, kind)


def _cell(field: pa.Field) -> str:
    """Return what writes a cell of CSV: empty if it is missing, in quotes if it is a text."""
    name, kind = quoted(field.name), field.type
    if pa.types.is_string(kind):
        value = f"""concat('"', replace(convert({name} using utf8mb4), '"', '""'), '"')"""
    elif pa.types.is_binary(kind):
        value = f"""concat('"', hex({name}), '"')"""
    elif pa.types.is_float32(kind):
        value = f"{name} + 0e0"  # written by itself it has six digits
    elif pa.types.is_uint64(kind):
        value = f"{name} + 0"
    else:
        value = name
    return f"coalesce({value}, '')"


def rows_of_lines(lines: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows that lines of CSV are; without quotes an empty cell is missing.

    Raises:
        DataError: Names the column whose value is none of its type.
    """
    parsed = {field.name: _parsed_type(field.type) for field in schema}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(lines),
            read_options=pyarrow.csv.ReadOptions(
                column_names=schema.names, block_size=len(lines) + 1, use_threads=False
            ),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=parsed, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        match = _CELL.search(str(error))
        if match is None:
            raise
        name, kind, value = schema.names[int(match[1])], match[2], match[3]
        raise DataError(
            f"column {name!r} holds {value}, which is no {kind}: leave such rows out, or cast it in the query"
        ) from error
    for place, field in enumerate(schema):
        if pa.types.is_binary(field.type):
            values = [None if text is None else bytes.fromhex(text) for text in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.chunked_array([pa.array(values, pa.binary())]))
    for batch in table.to_batches():
        yield plain(batch, schema)


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_binary(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


@contextlib.contextmanager
def connect(url: str, base: Path) -> Iterator[MysqlSession]:
    """Open a transaction that only reads, of one moment, on a server; its times are those of UTC."""
    del base
    import pymysql
    from pymysql.cursors import SSCursor

    parts = urlsplit(url)
    arguments: dict[str, Any] = dict(parse_qsl(parts.query))
    if unknown := sorted(set(arguments) - {*_OPTIONS}):
        raise DataError(f"got the argument {unknown[0]}, expected {', '.join(_OPTIONS)}: correct the address")
    connection = pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
        database=unquote(parts.path.removeprefix("/")),
        connect_timeout=CONNECT_S,
        read_timeout=database.QUESTION_S,
        charset="utf8mb4",
        cursorclass=SSCursor,
        init_command="set session time_zone = '+00:00'",
        ssl_verify_cert="ssl_ca" in arguments,  # by the authority's file alone PyMySQL 1.2 verifies nothing
        ssl_verify_identity="ssl_ca" in arguments,
        **arguments,
    )
    with contextlib.closing(connection):
        yield MysqlSession(connection)


def _is_binary(name: str) -> str:
    """Return the question whether a column holds bytes, which have this character set, as MySQL calls it."""
    return f"charset({quoted(name)}) = 'binary'"


def digest(names: list[str]) -> str:
    """Return what is asked of all rows: one scan of the server, in any order."""
    cells = ", ".join(f"quote({quoted(name)})" for name in names)
    number = f"cast(conv(left(md5(concat_ws(',', {cells})), 16), 16, 10) as unsigned)"
    return f"select count(*), cast(coalesce(sum({number}), 0) as char) from ({{sql}}\n) as q"


_TABLES = """
select t.table_schema as folder, t.table_name as name, t.table_schema <=> database() as is_default,
    t.table_type <> 'BASE TABLE' as is_view, t.table_rows as num_rows,
    (select count(*) from information_schema.columns c
        where c.table_schema = t.table_schema and c.table_name = t.table_name) as num_columns
from information_schema.tables t
where t.table_schema not in ('information_schema', 'mysql', 'performance_schema', 'sys')"""
MYSQL = Database(
    library="pymysql",
    connect=connect,
    quote=quoted,
    digest=digest,
    tables=_TABLES,
    random="rand()",
)
