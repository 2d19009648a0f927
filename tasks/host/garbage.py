"""Garbage collection in a thread of its own, so that a finalizer that waits never blocks an event loop.

When sqlite3 collects an unfinished cursor, it resets the cursor and waits until the connection is idle. If the event
loop's thread runs this collection, there can be a deadlock: the connection waits for a lock that the event loop would
release in its next step, and the event loop waits for the connection. Prefect's server hung this way for 60 s, its
timeout for locks, about once in five minutes of our tests (prefect 3.8.8, aiosqlite 0.22.1, Python 3.11).
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

LOOK_S = 0.25


@contextlib.contextmanager
def collected_aside() -> Iterator[None]:
    """Collect garbage only in a separate thread during the block, at the interpreter's own thresholds."""
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
        counts, thresholds = gc.get_count(), gc.get_threshold()
        due = [generation for generation in range(3) if counts[generation] > thresholds[generation]]
        if due:
            gc.collect(due[-1])
