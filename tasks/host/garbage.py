"""Garbage collection in a thread of its own, so that a finalizer that waits never blocks an event loop.

sqlite3 resets an unfinished cursor as it is collected, and for that waits until its connection is idle. That
connection may be waiting for a lock which the event loop would give back with its next step, and the loop's thread,
which happened to collect, waits for the connection: Prefect's server stood still for 60 s, its time limit for locks,
about once in five minutes of our tests (prefect 3.8.8, aiosqlite 0.22.1, Python 3.11).
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

LOOK_S = 0.25


@contextlib.contextmanager
def collected_aside() -> Iterator[None]:
    """During the block only one thread of this process collects garbage; the thresholds stay as they are."""
    over = threading.Event()
    collector = threading.Thread(target=_collect_until, args=(over,), name="loopline-garbage", daemon=True)
    was_enabled = gc.isenabled()
    gc.disable()
    collector.start()
    try:
        yield
    finally:
        over.set()
        if was_enabled:
            gc.enable()


def _collect_until(over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        counts, most = gc.get_count(), gc.get_threshold()
        due = [generation for generation in range(3) if counts[generation] > most[generation]]
        if due:
            gc.collect(due[-1])
