"""The tables and views of a database: as a list, by the name that a user writes, and as a sample of their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from models.errors import UsageError, did_you_mean
from models.sources.databases.database import Database, OpenDatabase
from models.sources.sample import CELLS, TableSample, whole

SAMPLE_BYTES = 256 << 20
MOST_COUNTED = 100_000
"""Rows up to which a table is counted whose catalogue does not tell its size."""
MOST_LISTED = 50
"""Tables whose rows are counted, and that are shown."""


class DatabaseTable(NamedTuple):
    """A table or view that the user of an address may read.

    Attributes:
        schema: Its schema; empty where a database has none.
        name: Its name.
        is_default: Whether a query finds it without its schema.
        is_view: Whether it is a view.
        num_rows: As the catalogue estimates it; None if it does not.
        num_columns: None if the catalogue does not say.
    """

    schema: str
    name: str
    is_default: bool
    is_view: bool
    num_rows: int | None
    num_columns: int | None

    @property
    def text(self) -> str:
        """What a user writes to name it."""
        return self.name if self.is_default else f"{self.schema}.{self.name}"

    @property
    def size(self) -> str:
        """Its rows and columns in words."""
        kind = ["view"] if self.is_view else []
        rows = [] if self.num_rows is None else [f"{_rounded(self.num_rows)} row{'s' * (self.num_rows != 1)}"]
        columns = [] if self.num_columns is None else [f"{self.num_columns} column{'s' * (self.num_columns != 1)}"]
        return ", ".join([*kind, *rows, *columns])

    def select(self, database: Database) -> str:
        """Return the query of all its rows."""
        parts = [self.name] if self.is_default else [self.schema, self.name]
        return f"select * from {'.'.join(map(database.quote, parts))}"


def tables_of(database: Database, session: OpenDatabase) -> list[DatabaseTable]:
    """Return the tables and views that the user of an open database may read, those of its own schema first."""
    rows = _rows(session, database.tables, session.schema(database.tables))
    tables = [
        DatabaseTable(
            str(row["folder"] or ""),
            str(row["name"]),
            bool(row["is_default"]),
            bool(row["is_view"]),
            None if row["num_rows"] is None else int(row["num_rows"]),
            None if row["num_columns"] is None else int(row["num_columns"]),
        )
        for row in rows.to_pylist()
    ]
    return sorted(tables, key=lambda table: (not table.is_default, table.schema, table.name))


def counted(tables: Sequence[DatabaseTable], database: Database, session: OpenDatabase) -> list[DatabaseTable]:
    """Return the first tables, with rows that were counted where the catalogue tells none; views are not counted."""
    return [
        table._replace(num_rows=_num_rows(table, database, session))
        if table.num_rows is None and not table.is_view
        else table
        for table in tables[:MOST_LISTED]
    ]


def table_named(text: str, tables: Sequence[DatabaseTable]) -> DatabaseTable:
    """Return the table that a user names, as it is listed or with its schema.

    Raises:
        UsageError: There is none that may be read; it has the nearest names.
    """
    by_text = {f"{table.schema}.{table.name}": table for table in tables} | {table.text: table for table in tables}
    if text not in by_text:
        names = sorted((table.text for table in tables), key=lambda name: name.casefold() != text.casefold())
        spelling = names[0] if names[0].casefold() == text.casefold() else text
        cure = did_you_mean(spelling, names, "correct the name, or grant its user the right to select")
        expected = f"expected one that its user may read, of {_few(names)}"
        raise UsageError(f"--from: got the table {text!r}, {expected}: {cure}")
    return by_text[text]


def sample_of_query(database: Database, session: OpenDatabase, sql: str) -> TableSample:
    """Return the rows of a query, or, of many, the first ones and some at random.

    Cost: of many rows the server scans them twice: it counts them, and draws some.
    """
    schema = session.schema(sql)
    num_sampled = max(1, CELLS // len(schema))
    rows = f"from ({sql}\n) as q"
    head = _rows(session, f"select * {rows} limit {num_sampled + 1}", schema)
    if head.num_rows <= num_sampled and head.nbytes < SAMPLE_BYTES:
        return whole(head)
    num_rows = int(session.row(f"select count(*) {rows}")[0])
    num_sampled = min(num_sampled, head.num_rows)
    head = head.slice(0, num_sampled // 4)
    share = min(1.0, 0.75 * num_sampled / num_rows)
    drawn = _rows(session, f"select * {rows} where {database.random} < {share:.12f} limit {num_sampled}", schema)
    drawn = drawn.filter(pc.invert(pc.is_in(_texts(drawn), value_set=_texts(head))))
    return TableSample(pa.concat_tables([head, drawn]), num_rows, head.num_rows)


def _rows(session: OpenDatabase, sql: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of a query, or of wide ones as many as `SAMPLE_BYTES` hold."""
    batches: list[pa.RecordBatch] = []
    num_bytes = 0
    with contextlib.closing(session.batches(sql, schema)) as rows:
        for batch in rows:
            batches.append(batch)
            num_bytes += batch.nbytes
            if num_bytes >= SAMPLE_BYTES:
                break
    return pa.Table.from_batches(batches, schema)


def _texts(table: pa.Table) -> pa.ChunkedArray:
    """Return a text for each row, by which rows that were drawn twice are told."""
    is_plain = (pa.types.is_nested, pa.types.is_binary)
    columns = [
        pc.fill_null(column.cast(pa.string()), "")
        for column in table.columns
        if not any(is_kind(column.type) for is_kind in is_plain)
    ]
    return pc.binary_join_element_wise(*columns, "\x1f") if columns else pa.chunked_array([pa.nulls(len(table))])


def _num_rows(table: DatabaseTable, database: Database, session: OpenDatabase) -> int:
    some = f"{table.select(database).replace('*', '1 as x', 1)} limit {MOST_COUNTED + 1}"
    row: tuple[Any, ...] = session.row(f"select count(*) from ({some}\n) as q")
    return int(row[0])


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _rounded(num_rows: int) -> str:
    return f"over {MOST_COUNTED:,}" if num_rows == MOST_COUNTED + 1 else f"{num_rows:,}"
