"""A thread that goes on while garbage is collected does not wait for what the garbage waits for."""

import gc
import sqlite3
import threading
import time
from pathlib import Path

from tasks.host.garbage import collected_aside


class Kept:
    """A cycle that holds an unfinished cursor, as an exception's traceback may."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor, self.itself = cursor, self


def test_a_lock_is_given_back_though_a_cursor_of_who_waits_for_it_is_garbage(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first, second = (sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False) for _ in range(2))
    first.execute("pragma journal_mode = wal")
    first.execute("create table rows (number integer)")
    ended: list[str] = []

    def wait_for_the_lock() -> None:
        try:
            second.execute("insert into rows values (3)")
            ended.append("written")
        except sqlite3.OperationalError as error:
            ended.append(str(error))

    waiting = threading.Thread(target=wait_for_the_lock)
    was_enabled = gc.isenabled()
    gc.disable()  # nobody collects before the lock is waited for
    try:
        Kept(second.execute("values (1), (2)")).cursor.fetchone()
        first.execute("begin immediate")
        waiting.start()
        time.sleep(0.5)
        with collected_aside():
            for _ in range(40):  # this thread makes garbage for two seconds, and then gives the lock back
                made = [[] for _ in range(10_000)]
                del made
                time.sleep(0.05)
            first.rollback()
            waiting.join()
        assert not gc.isenabled(), "as it was before"
    finally:
        if was_enabled:
            gc.enable()
        for connection in (first, second):
            connection.close()
    assert ended == ["written"]
