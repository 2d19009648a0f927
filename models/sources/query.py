"""The row of sources that are a query of a database (`data.source: {sql: ..., at: ...}`).

What a loop asks before it reads: of a cursor its highest value, and how many rows are within the overlap; without one
a server counts and hashes its rows in one scan, and a file of SQLite or DuckDB is known by its content.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from models.errors import DataError, UsageError
from models.files import Hashes
from models.project_spec.data import SqlQuery
from models.sources.address import expanded
from models.sources.source import Arrival, Fetch, LastIngest, Loaded, Parts, Source

FORM = "{sql: a query, at: the address of a database}"
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


def is_query(named: Any) -> bool:
    """Return whether `data.source` is a query."""
    return isinstance(named, SqlQuery)


def query_of(source: Source) -> SqlQuery:
    """Return the query that a source is."""
    assert isinstance(source.named, SqlQuery)
    return source.named


def check(source: Source, is_text: bool) -> None:
    """Refuse a database that cannot be reached, and a query that it refuses or whose columns cannot be read.

    Raises:
        UsageError: A variable is not set, or the query lacks its cursor.
        StoreError: The database cannot be reached.
        DataError: It refuses the query.
    """
    del is_text
    from models.sources.databases.databases import opened

    query = query_of(source)
    with opened(query.at, source.base, source.text) as (_, session):
        names = session.schema(query.sql).names
    refuse_missing_cursor(query, names)


def refuse_missing_cursor(query: SqlQuery, names: list[str]) -> None:
    """Refuse a cursor that is no column of its query.

    Raises:
        UsageError: Names the columns.
    """
    if query.cursor is not None and query.cursor not in names:
        raise UsageError(
            f"data.source.cursor: got {query.cursor!r}, expected a column of the query: {', '.join(names[:10])}"
        )


def read(source: Source, fetch: Fetch) -> Loaded:
    """Return the path of the file into which `fetch` has written the rows."""
    return Loaded(fetch(source.named), source.text)


def identity(source: Source, hashes: Hashes, last: Parts | None) -> Parts:
    """Return what tells that rows came or changed; not one row is fetched.

    Raises:
        StoreError: The database cannot be reached.
        DataError: It refuses the query.
    """
    query = query_of(source)
    part = f"query:{query.at}"
    if last is not None:
        return {part: last.get(part)}
    from models.sources.databases.databases import database_of, opened

    url = expanded(query.at)
    file = None if query.cursor is not None else database_of(url, source.text).file(url, source.base)
    if file is not None and file.is_file():
        return {part: {"file": hashes.of(file), "log": _log_hash(file, hashes)}}
    with opened(query.at, source.base, source.text) as (database, session):
        if query.cursor is not None:
            return {part: cursor_state(query, database, session)}
        names = session.schema(query.sql).names
        num_rows, digest = session.row(database.digest(names).replace("{sql}", query.sql))
        return {part: {"rows": int(num_rows), "hash": str(digest)}}


def cursor_state(query: SqlQuery, database: Any, session: Any) -> dict[str, Any]:
    """Return the cursor's highest value as SQL writes it, and the number of rows within the overlap."""
    column, rows = database.quote(query.cursor), f"from ({query.sql}\n) as q"
    highest = session.row(f"select max({column}) {rows}")[0]
    if highest is None:
        return {"highest": None, "rows": 0}
    low = literal(behind(highest, query.overlap, str(query.cursor)))
    num_rows = session.row(f"select count(*) {rows} where {column} >= {low}")[0]
    return {"highest": literal(highest), "rows": int(num_rows)}


def growth(source: Source, before: LastIngest, hashes: Hashes, _: float) -> Arrival | None:
    """Return what came or changed since the last ingest.

    Raises:
        StoreError: The database cannot be reached.
    """
    query = query_of(source)
    part = f"query:{query.at}"
    now, earlier = identity(source, hashes, None)[part], before.parts.get(part)
    if now == earlier or not earlier:
        return None
    num_new, is_same_look = None, now.keys() == earlier.keys()  # the spec may have got or lost its cursor
    if is_same_look and query.cursor is not None and earlier["highest"] is not None:
        from models.sources.databases.databases import opened

        with opened(query.at, source.base, source.text) as (database, session):
            newer = f"where {database.quote(query.cursor)} > {earlier['highest']}"
            num_new = int(session.row(f"select count(*) from ({query.sql}\n) as q {newer}")[0])
    elif is_same_look and "rows" in now and "hash" in now:
        num_new = now["rows"] - earlier["rows"]
    text = f"{query.at}: {num_new:+,} rows" if num_new else f"{query.at}: its rows have changed"
    return Arrival({"before": before.key, "now": now}, text, num_new)


def literal(value: Any) -> str:
    """Return a value of a cursor, one that `behind` took, as SQL writes it."""
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def behind(value: Any, overlap: int, name: str) -> Any:
    """Return the value of a cursor that lies so far behind another one; texts are times as ISO 8601 writes them.

    Raises:
        DataError: It is no time, date or number.
    """
    if isinstance(value, datetime):
        return value - timedelta(seconds=overlap)
    if isinstance(value, date):
        return value - timedelta(days=-(-overlap // 86_400))
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and math.isfinite(value):
        return value - overlap
    if not (isinstance(value, str) and _ISO.match(value)):
        raise _refused(value, name)
    try:
        time = datetime.fromisoformat(value) - timedelta(seconds=overlap)
    except ValueError as error:
        raise _refused(value, name) from error
    return time.date().isoformat() if len(value) == 10 else time.replace(tzinfo=None).isoformat(value[10], "seconds")


def _refused(value: Any, name: str) -> DataError:
    return DataError(
        f"data.source.cursor: {name!r} holds {str(value)[:30]!r}, expected a time or date such as 2026-05-31, or a "
        "number: cast it"
    )


def _log_hash(file: Path, hashes: Hashes) -> str:
    """Return the hash of what a database has not moved into its file yet."""
    logs = [file.with_name(file.name + end) for end in ("-wal", ".wal")]
    return json.dumps([hashes.of(log) for log in logs if log.is_file()])
