"""The counts of monitoring: one SQLite file a project; counts and log position change in one transaction.

A monitoring run is a few transactions: the counts and the position in the log are committed together, so after a kill
no prediction and no label counts twice.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from models.data.seen_hashes import SortedHashSet
from models.errors import StoreError
from models.monitoring.examples import KeyedPredictions, Keys
from models.monitoring.report import WindowReport
from models.monitoring.tally import PredictionCounts
from models.monitoring.windowing import REMEMBERED, OpenWindow
from tasks.host.locks import held

FILE = "counts.sqlite"
LOCK_TIMEOUT_S = 60.0
MOST_WINDOWS = 200
"""Windows of a version whose counts are kept: later labels find their prediction in these."""
MOST_WAITING = 200_000
"""Labels that wait for their prediction: of more, those that came last."""
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
    """The counts of one project; open it with `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it, or nothing."""
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    def place(self, log: str) -> int:
        """The cursor up to which a log has been counted."""
        row = self._db.execute("select value from places where name = ?", (log,)).fetchone()
        return int(row[0]) if row else 0

    def set_place(self, log: str, cursor: int) -> None:
        """Go on from here next time."""
        self._db.execute("insert or replace into places values (?, ?)", (log, cursor))

    def versions(self) -> list[str]:
        """Versions with predictions, in the order of their first window."""
        rows = self._db.execute("select version from windows group by version order by min(begin)").fetchall()
        return [str(row[0]) for row in rows]

    def last_window(self, version: str, size: int) -> OpenWindow:
        """The window that the version's next predictions belong to, or that they come after."""
        row = self._db.execute(
            "select first from windows where version = ? order by first desc limit 1", (version,)
        ).fetchone()
        return self.window(version, int(row[0])) if row else OpenWindow(0, size)

    def window(self, version: str, first: int) -> OpenWindow:
        """A window with all its counts."""
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
        """The newest predictions of a version."""
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
        """Keep a window that changed."""
        known = self._db.execute(
            "select keys from windows where version = ? and first = ?", (version, window.first)
        ).fetchone()
        before = np.frombuffer(known[0], dtype=np.uint64) if known and known[0] else np.zeros(0, np.uint64)
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
        """Version, place and examples of each window that a label may belong to."""
        rows = self._db.execute("select version, first from windows where examples is not null").fetchall()
        for version, first in rows:
            (content,) = self._db.execute(
                "select examples from windows where version = ? and first = ?", (version, first)
            ).fetchone()
            yield str(version), int(first), KeyedPredictions.from_bytes(content)

    def save_examples(self, version: str, first: int, examples: KeyedPredictions) -> None:
        """Keep a window's examples, to be looked at again."""
        self._db.execute(
            "update windows set examples = ?, changed = 1 where version = ? and first = ?",
            (examples.to_bytes(), version, first),
        )

    def wait(self, keys: Keys, labels: Sequence[str]) -> None:
        """Keep labels whose prediction is not known, in the order in which they came; of several of one the last."""
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
        """Keys and labels that wait for their prediction."""
        rows = self._db.execute("select key, label from waiting").fetchall()
        return np.array([row[0] for row in rows], dtype=np.int64).view(np.uint64), [str(row[1]) for row in rows]

    def no_longer_wait(self, keys: Keys) -> None:
        """These have found their prediction."""
        self._db.executemany("delete from waiting where key = ?", [(key,) for key in keys.view(np.int64).tolist()])

    def num_waiting(self) -> int:
        """Number of labels that wait for their prediction."""
        return int(self._db.execute("select count(*) from waiting").fetchone()[0])

    def changed(self, version: str) -> list[int]:
        """Windows of a version that are to be looked at, oldest first."""
        rows = self._db.execute(
            "select first from windows where version = ? and changed order by first", (version,)
        ).fetchall()
        return [int(row[0]) for row in rows]

    def reports(self, version: str) -> list[WindowReport]:
        """The report of each window of a version, oldest first."""
        rows = self._db.execute(
            "select report from windows where version = ? and report is not null order by first", (version,)
        )
        return [WindowReport.model_validate_json(row[0]) for row in rows]

    def save_report(self, version: str, first: int, window: WindowReport) -> None:
        """Keep the report of a window."""
        self._db.execute(
            "update windows set report = ?, changed = 0 where version = ? and first = ?",
            (window.model_dump_json(), version, first),
        )

    def unlogged(self, version: str) -> list[tuple[int, WindowReport, str]]:
        """First row, report and what MLflow was sent of each whole window; MLflow gets what differs."""
        rows = self._db.execute(
            "select first, report, logged from windows where version = ? and num_rows >= size and report is not null "
            "order by first",
            (version,),
        )
        return [(int(first), WindowReport.model_validate_json(report), str(logged)) for first, report, logged in rows]

    def set_logged(self, version: str, first: int, logged: str) -> None:
        """Note which metrics of a window MLflow has."""
        self._db.execute("update windows set logged = ? where version = ? and first = ?", (logged, version, first))

    def was_sent(self, signal: str) -> bool:
        """Whether a signal was sent before."""
        return self._db.execute("select 1 from signals where id = ?", (signal,)).fetchone() is not None

    def set_sent(self, signal: str) -> None:
        """A signal was sent."""
        self._db.execute("insert or ignore into signals values (?)", (signal,))

    def settle(self, settings: str) -> None:
        """Look at every window again if what they are judged by has changed."""
        row = self._db.execute("select value from settings where name = 'judged by'").fetchone()
        if row is None or row[0] != settings:
            self._db.execute("update windows set changed = 1")
            self._db.execute("insert or replace into settings values ('judged by', ?)", (settings,))

    def forget(self, version: str) -> None:
        """Let go of the oldest windows, and of keys too old to come twice."""
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
        """Labels of windows that were let go of."""
        return self.place("forgotten labels")

    def num_predictions(self) -> int:
        """Counted so far, of all versions."""
        row = self._db.execute(
            "select coalesce(sum(last), 0) from (select max(first + num_rows) as last from windows group by version)"
        ).fetchone()
        return int(row[0])


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[MonitorStore]:
    """The store in a folder, made at first use; one look at a time.

    Raises:
        StoreError: Another monitoring run is in progress, or the file cannot be used.
    """
    busy = f"{folder}: another look at these predictions goes on: wait for it"
    with held(folder / "look.lock", lambda: busy, LOCK_TIMEOUT_S):
        try:
            with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None, timeout=60)) as connection:
                _make_ready(connection)
                yield MonitorStore(connection)
        except sqlite3.Error as error:
            cure = "remove the file: everything is counted again from the prediction log"
            raise StoreError(f"{folder / FILE}: cannot be used ({error}): {cure}") from error


def _make_ready(connection: sqlite3.Connection) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.executescript(_SCHEMA)
    with contextlib.suppress(sqlite3.OperationalError):  # a store of before it was noted when a label came
        connection.execute("alter table waiting add column came integer not null default 0")
