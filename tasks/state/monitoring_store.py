"""Monitoring's counts: one SQLite file per project, in which counts and log cursors are committed together.

A monitoring run makes a few transactions. If it is killed, a transaction's counts and its log cursor are either both
stored or both missing. So no prediction and no label counts twice.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from models.identity.hashing import SortedHashSet
from models.monitoring.examples import KeyedPredictions, Keys
from models.monitoring.report import WindowReport
from models.monitoring.tally import PredictionCounts
from models.monitoring.windowing import REMEMBERED, OpenWindow
from tasks.host import sqlite_files
from tasks.host.locks import held

FILE = "counts.sqlite"
LOCK_TIMEOUT_S = 60.0
MOST_WINDOWS = 200
"""Windows of a version whose counts are stored: late labels are matched with the predictions in these windows."""
MOST_WAITING = 200_000
"""Maximum number of labels that wait for their prediction: the latest are stored."""
_SCHEMA = """
create table if not exists places (name text primary key, value integer not null);
create table if not exists windows (
    version text not null, first integer not null, size integer not null, num_rows integer not null,
    begin real not null, end real not null, keys blob, examples blob, changed integer not null default 1,
    report text, logged text not null default '', primary key (version, first)) without rowid;
create table if not exists hours (
    version text not null, first integer not null, hour integer not null, num_rows integer not null,
    tally blob not null, primary key (version, first, hour)) without rowid;
create table if not exists waiting (key integer primary key, label text not null, came integer not null default 0);
create table if not exists signals (id text primary key);
create table if not exists settings (name text primary key, value text not null);
"""


class MonitorStore:
    """The stored counts of one project; open the store with `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or roll them back on an error."""
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def place(self, log: str) -> int:
        """Return the cursor up to which a log has been counted."""
        row = self._db.execute("select value from places where name = ?", (log,)).fetchone()
        return int(row[0]) if row else 0

    def set_place(self, log: str, cursor: int) -> None:
        """Store the cursor up to which a log has been counted."""
        self._db.execute("insert or replace into places values (?, ?)", (log, cursor))

    def versions(self) -> list[str]:
        """Return the versions that have predicted, by the time of their first window."""
        rows = self._db.execute("select version from windows group by version order by min(begin)").fetchall()
        return [str(row[0]) for row in rows]

    def last_window(self, version: str, size: int) -> OpenWindow:
        """Return the version's last window: the next predictions belong to it, or come after it if it is full."""
        row = self._db.execute(
            "select first from windows where version = ? order by first desc limit 1", (version,)
        ).fetchone()
        return self.window(version, int(row[0])) if row else OpenWindow(0, size)

    def window(self, version: str, first: int) -> OpenWindow:
        """Return a window with all its counts."""
        size, begin, end, examples = self._db.execute(
            "select size, begin, end, examples from windows where version = ? and first = ?", (version, first)
        ).fetchone()
        hours = self._db.execute("select hour, tally from hours where version = ? and first = ?", (version, first))
        return OpenWindow(
            first,
            size,
            begin,
            end,
            {int(hour): PredictionCounts.from_bytes(content) for hour, content in hours},
            [],
            KeyedPredictions.from_bytes(examples) if examples is not None else KeyedPredictions.empty(),
        )

    def seen(self, version: str) -> SortedHashSet:
        """Return the keys of a version's newest predictions, at least REMEMBERED of them if there are so many."""
        rows = self._db.execute(
            "select keys, num_rows from windows where version = ? and keys is not null order by first desc", (version,)
        )
        parts, total = [], 0
        for content, num_rows in rows:
            parts.append(np.frombuffer(content, dtype=np.uint64))
            total += num_rows
            if total >= REMEMBERED:
                break
        return SortedHashSet(*parts)

    def save(self, version: str, window: OpenWindow) -> None:
        """Store a changed window."""
        row = self._db.execute(
            "select keys from windows where version = ? and first = ?", (version, window.first)
        ).fetchone()
        before = np.frombuffer(row[0], dtype=np.uint64) if row and row[0] else np.zeros(0, np.uint64)
        keys = np.concatenate([before, *window.keys])[-REMEMBERED:].tobytes()
        self._db.execute(
            "insert into windows (version, first, size, num_rows, begin, end, keys, examples) "
            "values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set num_rows = excluded.num_rows, "
            "begin = excluded.begin, end = excluded.end, keys = excluded.keys, examples = excluded.examples, "
            "changed = 1",
            (
                version,
                window.first,
                window.size,
                window.num_rows,
                window.begin,
                window.end,
                keys,
                window.examples.to_bytes() if len(window.examples.keys) else None,
            ),
        )
        self._db.executemany(
            "insert or replace into hours values (?, ?, ?, ?, ?)",
            [(version, window.first, hour, part.num_rows, part.to_bytes()) for hour, part in window.hours.items()],
        )

    def with_examples(self) -> Iterator[tuple[str, int, KeyedPredictions]]:
        """Yield version, first row and examples of each window that a label may belong to."""
        rows = self._db.execute("select version, first from windows where examples is not null").fetchall()
        for version, first in rows:
            (content,) = self._db.execute(
                "select examples from windows where version = ? and first = ?", (version, first)
            ).fetchone()
            yield str(version), int(first), KeyedPredictions.from_bytes(content)

    def save_examples(self, version: str, first: int, examples: KeyedPredictions) -> None:
        """Store a window's examples, and mark the window as changed."""
        self._db.execute(
            "update windows set examples = ?, changed = 1 where version = ? and first = ?",
            (examples.to_bytes(), version, first),
        )

    def wait(self, keys: Keys, labels: Sequence[str]) -> None:
        """Store labels whose prediction is unknown, in the order of arrival; of several labels of one id, the last."""
        if not labels:
            return
        (last,) = self._db.execute("select coalesce(max(came), 0) from waiting").fetchone()
        rows = zip(keys.view(np.int64).tolist(), labels, range(last + 1, last + 1 + len(labels)), strict=True)
        self._db.executemany("insert or replace into waiting values (?, ?, ?)", list(rows))
        self._db.execute(
            "delete from waiting where came <= (select came from waiting order by came desc limit 1 offset ?)",
            (MOST_WAITING,),
        )

    def waiting(self) -> tuple[Keys, list[str]]:
        """Return keys and labels that wait for their prediction."""
        rows = self._db.execute("select key, label from waiting").fetchall()
        return np.array([row[0] for row in rows], dtype=np.int64).view(np.uint64), [str(row[1]) for row in rows]

    def no_longer_wait(self, keys: Keys) -> None:
        """Delete waiting labels whose prediction has come."""
        self._db.executemany("delete from waiting where key = ?", [(key,) for key in keys.view(np.int64).tolist()])

    def num_waiting(self) -> int:
        """Return how many labels wait for their prediction."""
        return int(self._db.execute("select count(*) from waiting").fetchone()[0])

    def changed(self, version: str) -> list[int]:
        """Return the changed windows of a version, which need a new report, oldest first."""
        rows = self._db.execute(
            "select first from windows where version = ? and changed order by first", (version,)
        ).fetchall()
        return [int(row[0]) for row in rows]

    def reports(self, version: str) -> list[WindowReport]:
        """Return the report of each window of a version, oldest first."""
        rows = self._db.execute(
            "select report from windows where version = ? and report is not null order by first", (version,)
        )
        return [WindowReport.model_validate_json(row[0]) for row in rows]

    def save_report(self, version: str, first: int, window: WindowReport) -> None:
        """Store the report of a window."""
        self._db.execute(
            "update windows set report = ?, changed = 0 where version = ? and first = ?",
            (window.model_dump_json(), version, first),
        )

    def unlogged(self, version: str) -> list[tuple[int, WindowReport, str]]:
        """Return first row, report, and key of the metrics last sent to MLflow, of each full window."""
        rows = self._db.execute(
            "select first, report, logged from windows where version = ? and num_rows >= size and report is not null "
            "order by first",
            (version,),
        )
        return [(int(first), WindowReport.model_validate_json(report), str(logged)) for first, report, logged in rows]

    def set_logged(self, version: str, first: int, logged: str) -> None:
        """Store the key of a window's metrics that were sent to MLflow."""
        self._db.execute("update windows set logged = ? where version = ? and first = ?", (logged, version, first))

    def was_sent(self, signal: str) -> bool:
        """Return whether a signal was sent before."""
        return self._db.execute("select 1 from signals where id = ?", (signal,)).fetchone() is not None

    def set_sent(self, signal: str) -> None:
        """Store that a signal was sent."""
        self._db.execute("insert or ignore into signals values (?)", (signal,))

    def settle(self, settings: str) -> None:
        """Mark every window as changed if the settings by which windows are judged have changed."""
        row = self._db.execute("select value from settings where name = 'judged by'").fetchone()
        if row is None or row[0] != settings:
            self._db.execute("update windows set changed = 1")
            self._db.execute("insert or replace into settings values ('judged by', ?)", (settings,))

    def forget(self, version: str) -> None:
        """Delete the oldest windows, and keys that are too old to detect a repeated prediction."""
        rows = self._db.execute(
            "select first, num_rows from windows where version = ? order by first desc", (version,)
        ).fetchall()
        total = 0
        for place, (first, num_rows) in enumerate(rows):
            if place >= MOST_WINDOWS:
                self._keep_labels_of(version, first)
                self._db.execute("delete from windows where version = ? and first = ?", (version, first))
                self._db.execute("delete from hours where version = ? and first = ?", (version, first))
            elif total > REMEMBERED:
                self._db.execute("update windows set keys = null where version = ? and first = ?", (version, first))
            total += num_rows

    def _keep_labels_of(self, version: str, first: int) -> None:
        (report,) = self._db.execute(
            "select report from windows where version = ? and first = ?", (version, first)
        ).fetchone()
        if report is not None:
            labels = WindowReport.model_validate_json(report).num_labels
            self.set_place("forgotten labels", self.num_forgotten_labels() + labels)

    def num_forgotten_labels(self) -> int:
        """Return the number of labels in deleted windows."""
        return self.place("forgotten labels")

    def num_predictions(self) -> int:
        """Return the number of predictions counted so far, over all versions."""
        row = self._db.execute(
            "select coalesce(sum(last), 0) from (select max(first + num_rows) as last from windows group by version)"
        ).fetchone()
        return int(row[0])


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[MonitorStore]:
    """Open the store in a folder, and create it at first use; only one monitoring run may have it open.

    Raises:
        StoreError: Another monitoring run has it open, or the file cannot be used.
    """
    busy = f"{folder}: another monitoring run uses it: wait for it"
    with held(folder / "look.lock", lambda: busy, LOCK_TIMEOUT_S):
        try:
            with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None, timeout=60)) as connection:
                _make_ready(connection)
                yield MonitorStore(connection)
        except sqlite3.Error as error:
            cure = "remove the file: everything is counted again from the prediction log"
            raise sqlite_files.store_error(folder / FILE, error, cure) from error


def _make_ready(connection: sqlite3.Connection) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.executescript(_SCHEMA)
    with contextlib.suppress(sqlite3.OperationalError):  # an older store lacks the arrival order of labels
        connection.execute("alter table waiting add column came integer not null default 0")
