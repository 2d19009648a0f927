"""An index of the label store by id: one SQLite file beside the table, built from them and rebuilt if it is missing.

Each look-up first adds the appends that came since the last one; rows and cursor are committed together. So a kill
after an append to the log leaves an index that is behind, and the next look-up catches up. The index contains nothing
that the log does not contain.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from models.errors import StoreError
from models.feedback.columns import LABEL
from models.files import write_text
from tasks.state.delta.delta_files import APPEND
from tasks.state.delta.delta_log import DeltaLog

FILE = "_by-id.sqlite"
GENERATION_FILE = "_generation"
SCAN_FACTOR = 4
"""If the look-up has more ids than a quarter of the log's rows, reading the whole log is cheaper."""
_SCHEMA = """
create table if not exists labels (
    id text not null, append integer not null, row integer not null, label text, at integer not null, by text,
    primary key (id, append, row)) without rowid;
create table if not exists state (
    one integer primary key check (one = 1), cursor integer not null, num_rows integer not null,
    generation text not null);
insert or ignore into state values (1, 0, 0, '');
pragma user_version = 1;
"""
_MATCHES = f"""
select place, {LABEL}, at, by from temp.wanted cross join labels using (id)
where append <= ? order by place, append, row"""  # noqa: S608 - names of ours
_log = logging.getLogger("loopline.labels")


class Label(NamedTuple):
    """The last label of an id: its text, its time of arrival (microseconds since 1970), and its source."""

    text: str | None
    at_us: int
    by: str | None


def latest(store: DeltaLog, ids: Sequence[str | None], upto: int) -> list[Label | None] | None:
    """Return the last label of each id among the appends up to `upto`.

    Returns:
        One entry for each id, or None if the caller should read the log: the log is small, or the index cannot be used.

    Cost: one look-up per id, and reading the appends that came since the last call.
    """
    if not upto:
        return None
    try:
        with _opened(store.folder) as index:
            num_rows = _catch_up(index, store, upto)
            if num_rows < SCAN_FACTOR * len(ids):
                return None
            return _look_up(index, ids, upto)
    except sqlite3.OperationalError as error:  # read-only, or another process fills it
        _log.warning("%s: not used: %s", store.folder / FILE, error)
    except sqlite3.DatabaseError as error:
        _log.warning("%s: damaged (%s): made anew from the log", store.folder / FILE, error)
        remove(store.folder)
    return None


def renew(folder: Path) -> None:
    """Invalidate the index, because rows of the log are changed or deleted.

    Call it before and after the change: an index that another process builds meanwhile is then invalid too.

    Raises:
        StoreError: The folder cannot be written.
    """
    if folder.is_dir():
        write_text(folder / GENERATION_FILE, f"{uuid.uuid4().hex}\n")


def remove(folder: Path) -> None:
    """Remove the index; the next look-up rebuilds it."""
    for suffix in ("", "-wal", "-shm"):
        (folder / f"{FILE}{suffix}").unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None, timeout=10)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")  # a lost commit leaves an index that is behind
        if not connection.execute("pragma user_version").fetchone()[0]:
            connection.executescript(_SCHEMA)
        yield connection


def _look_up(index: sqlite3.Connection, ids: Sequence[str | None], upto: int) -> list[Label | None]:
    index.execute("pragma temp_store = memory")
    index.execute("create temp table wanted (place integer primary key, id text)")
    index.execute("begin")
    index.executemany("insert into temp.wanted values (?, ?)", enumerate(ids))
    index.execute("commit")
    labels: list[Label | None] = [None] * len(ids)
    for place, *label in index.execute(_MATCHES, (upto,)):
        labels[place] = Label(*label)
    return labels


def _catch_up(index: sqlite3.Connection, store: DeltaLog, upto: int) -> int:
    """Add the log's new rows to the index, part by part; return the index's number of rows."""
    generation = _generation(store.folder)
    cursor, num_rows, made_in = index.execute("select cursor, num_rows, generation from state").fetchone()
    newest = store.cursor()
    if made_in == generation and upto <= cursor <= newest:
        return int(num_rows)
    while True:
        index.execute("begin immediate")
        try:
            cursor, num_rows, made_in = index.execute("select cursor, num_rows, generation from state").fetchone()
            if made_in != generation or cursor > newest:
                index.execute("delete from labels")
                cursor = num_rows = 0
            part = next(iter(store.parts(cursor)), None) if cursor < newest else None
            if part is not None:
                num_rows += _add(index, store, cursor, part.last)
            index.execute(
                "update state set cursor = ?, num_rows = ?, generation = ?",
                (part.last if part else max(cursor, newest), num_rows, generation),
            )
        except BaseException:
            index.execute("rollback")
            raise
        index.execute("commit")
        if part is None:
            return int(num_rows)


def _add(index: sqlite3.Connection, store: DeltaLog, since: int, upto: int) -> int:
    import pyarrow as pa

    places = itertools.count()
    total = 0
    for table in store.scan(since, upto, ["id", LABEL, "at", "by"], numbered=True):
        columns = [table.column(name).to_pylist() for name in ("id", APPEND, LABEL, "by")]
        times = table.column("at").cast(pa.int64()).to_pylist()
        ids, appends, labels, givers = columns
        rows = zip(ids, appends, itertools.islice(places, table.num_rows), labels, times, givers, strict=True)
        index.executemany("insert or replace into labels values (?, ?, ?, ?, ?, ?)", rows)
        total += table.num_rows
    return total


def _generation(folder: Path) -> str:
    try:
        return (folder / GENERATION_FILE).read_text().strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StoreError(
            f"{folder / GENERATION_FILE}: cannot be read ({error}): change its owner or its rights"
        ) from error
