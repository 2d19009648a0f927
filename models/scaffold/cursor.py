"""The cursor of a first spec whose source is a query: the column that grows with each change of a row, if one does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from models.inputs.types import is_text
from models.project_spec.data import SqlQuery
from models.scaffold.expectations import yaml_text
from models.scaffold.roles import is_date, words_of

WHEN_CHANGED = "when the row changed last: known only afterwards"
_CHANGES = re.compile(r"updated?|updatedat|modified|modification|changed?|mtime|edited")
_ARRIVALS = re.compile(r"created?|createdat|creation|ctime|inserted|added|loaded|ingested|recorded")
_ISO = r"^\d{4}-\d\d-\d\d([ T].*)?$"


class Cursor(NamedTuple):
    """The column that a first spec names as cursor, and why.

    Attributes:
        column: None if no column is clearly one.
        reason: The comment beside it, or in its place.
        is_change: Whether it moves with each change of a row, and not with its arrival alone.
    """

    column: str | None
    reason: str
    is_change: bool = False


NO_CURSOR = Cursor(None, "the source is no query")


def cursor_of(table: pa.Table, id_column: str | None) -> Cursor:
    """Return the cursor of a query: a time of changes, else a time of arrivals, else an id that grows.

    Args:
        table: The first rows, or all of them.
        id_column: The column by which a changed row replaces its earlier one.
    """
    if id_column is None:
        return Cursor(None, "no column names the rows, by which a changed one would replace its earlier one")
    times = [name for name in table.column_names if not table.column(name).null_count and _is_time(table, name)]
    for pattern, reason in ((_CHANGES, "moves with each change of a row"), (_ARRIVALS, _arrives("time"))):
        for name in times:
            if any(pattern.fullmatch(word) for word in words_of(name)):
                return Cursor(name, reason, pattern is _CHANGES)
    ids = table.column(id_column)
    if pa.types.is_integer(ids.type) and _is_growing(ids):
        return Cursor(id_column, _arrives("id"))
    return Cursor(None, "no column says by its name when a row changed, and the ids do not grow from row to row")


def query_lines(query: SqlQuery, cursor: Cursor) -> Iterator[str]:
    """Yield the lines of a spec that name a query, and its cursor or why it has none."""
    yield "  source:"
    lines = query.sql.strip().splitlines()
    if "".join(lines).isprintable():
        yield "    sql: |-"
        yield from (f"      {line}" if line else "" for line in lines)
    else:
        yield f"    sql: {yaml_text(query.sql)}"
    yield f"    at: {yaml_text(query.at)}"
    if cursor.column is None:
        yield f"    # No `cursor`: {cursor.reason}."
        yield "    # So a look for new data hashes all rows on the server, or the file of SQLite and DuckDB."
        return
    yield f"    # It {cursor.reason}."
    yield "    # A look for new data asks for its highest value, and only what is new is fetched."
    yield f"    cursor: {yaml_text(cursor.column)}"


def _arrives(name: str) -> str:
    return f"moves with each new row. Remove it if rows change in place: that moves no {name}"


def _is_time(table: pa.Table, name: str) -> bool:
    column = table.column(name)
    if not is_text(column.type):
        return is_date(table, name)
    return bool(len(column) and pc.all(pc.match_substring_regex(column, _ISO)).as_py())


def _is_growing(ids: pa.ChunkedArray) -> bool:
    values = ids.to_numpy()
    return bool((values[1:] > values[:-1]).all())
