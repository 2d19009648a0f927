"""Copies of the rows of queries, in the workspace's cache: written as they come, and with a cursor only what is new.

Rows that were deleted are no news of a cursor: after each fetch the server counts the rows of the query, and if the
copy has another number of them, all are read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.errors import DataError
from models.files import storing, whole_file
from models.project_spec.data import SqlQuery
from models.sources.address import expanded
from models.sources.databases.database import Database, OpenDatabase
from models.sources.databases.databases import database_of, opened
from models.sources.query import behind, literal, refuse_missing_cursor
from models.sources.read import parquet_options
from models.sources.row_batches import sized
from tasks.host.locks import FOREVER_S, held

GROUP_ROWS = 1 << 16


class _Open(NamedTuple):
    """A query in an open database, and the schema of its rows."""

    query: SqlQuery
    database: Database
    session: OpenDatabase
    schema: pa.Schema


def copied(query: SqlQuery, base: Path, id_column: str | None, cache: Path) -> Path:
    """Return a Parquet file with the rows of a query, all of one moment.

    Args:
        query: With a cursor, rows that are here already are fetched again only within its overlap.
        base: The folder of the spec.
        id_column: The column by which a fetched row replaces an earlier one.
        cache: The folder of all copies.

    Raises:
        StoreError: The database cannot be reached, or broke off; an earlier copy stays.
        DataError: It refuses the query, gives no row, or a value cannot be read.
    """
    path = cache / "queries" / f"{_name(query, base, id_column)}.parquet"
    with (
        held(path.with_suffix(".lock"), lambda: f"{path}: in use", FOREVER_S),
        storing(path),
        opened(query.at, base, query.summary) as (database, session),
    ):
        schema = session.schema(query.sql)
        refuse_missing_cursor(query, schema.names)
        rows = _Open(query, database, session, schema)
        if not _is_brought_up(rows, id_column, path):
            _write(path, schema, session.batches(query.sql, schema))
    return path


def _is_brought_up(rows: _Open, id_column: str | None, path: Path) -> bool:
    """Fetch what is new into the copy; return False if all rows must be read: no copy, no cursor, rows gone."""
    query, database, session, schema = rows
    if query.cursor is None or id_column not in schema.names or not path.is_file():
        return False
    if pq.read_schema(path) != schema:
        return False
    highest = pc.max(pq.read_table(path, columns=[query.cursor]).column(0)).as_py()
    if highest is None:
        return False
    low = literal(behind(highest, query.overlap, query.cursor))
    newer = f"select * from ({query.sql}\n) as q where {database.quote(query.cursor)} >= {low}"
    fetched = pa.Table.from_batches(session.batches(newer, schema), schema)
    ids = pc.unique(fetched.column(id_column))
    merged = path.with_suffix(".merged")
    num_rows = _write(merged, schema, _merged(path, fetched, ids, id_column))
    is_whole = bool(num_rows == session.row(f"select count(*) from ({query.sql}\n) as q")[0])
    if is_whole:
        merged.replace(path)
    else:
        merged.unlink()
    return is_whole


def _merged(path: Path, fetched: pa.Table, ids: pa.Array, id_column: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the copy that were not fetched again, in their order, then those that were."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(GROUP_ROWS):
            yield batch.filter(pc.invert(pc.is_in(batch.column(id_column), value_set=ids)))
    yield from fetched.to_batches(GROUP_ROWS)


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write batches as row groups, whole or not at all; return the number of rows."""
    num_rows = 0
    tables = sized((pa.Table.from_batches([batch], schema) for batch in batches), GROUP_ROWS)
    with whole_file(path) as temporary, contextlib.ExitStack() as stack:
        writer = None
        for table in tables:
            num_rows += table.num_rows
            writer = writer or stack.enter_context(pq.ParquetWriter(temporary, schema, **parquet_options(table)))
            writer.write_table(table)
        if not num_rows:
            raise DataError("the query returns no rows, expected at least ten: correct it, or wait for rows")
    return num_rows


def _name(query: SqlQuery, base: Path, id_column: str | None) -> str:
    """Return the name of a copy: of another query, id, user or database it is another; no secret is hashed."""
    url = expanded(query.at)
    parts = urlsplit(url)
    arguments = [(name, value) for name, value in parse_qsl(parts.query) if "pass" not in name.lower()]
    file = database_of(url, query.summary).file(url, base)
    place = [parts.scheme, parts.username, parts.hostname, parts.port, parts.path, arguments, file and file.resolve()]
    text = json.dumps([query.sql, query.at, query.cursor, id_column, place], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
