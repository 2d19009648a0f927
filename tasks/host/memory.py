"""Returns freed memory to the system between steps, because allocators keep it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

WORTH_MB = 384
"""A process that holds less for itself has little to return: libraries take up to 350, with those of S3 up to 450."""
GROWN_MB = 64
"""A process that holds less than this above what was left by an earlier collection has little garbage to collect."""
_least_left = 0


def release(*, always: bool = False) -> None:
    """Return free memory to the kernel in a process that holds more than `WORTH_MB`; collect garbage if it has grown.

    `always`: also in a smaller process, such as one that works on a large table alone.

    Cost: 20 ms; the first collection 0.3 to 0.5 s, since it looks at every object of all libraries. It frees 250 of
    613 MB in the process that has validated and prepared 336,776 rows.
    """
    global _least_left
    if _resident() < WORTH_MB << 20 and not always:  # it holds less for itself: no page need be counted, for 15 ms
        return
    held, enough = _held(), _least_left + (GROWN_MB << 20)
    if held < WORTH_MB << 20 and not always:
        return
    _trim()
    if _least_left and (held < enough or _held() < enough):
        return
    gc.collect()
    if not _least_left:
        gc.freeze()  # of libraries, nearly all of it: later collections look at what is newer, in a tenth of the time
    _trim()
    held = _held()
    _least_left = min(held, _least_left or held)


def _resident() -> int:
    """Return the memory of this process and what it shares with others, in bytes."""
    import psutil

    resident: int = psutil.Process().memory_info().rss
    return resident


def _held() -> int:
    """Return the memory that this process shares with no other, in bytes, without pages of files that it maps."""
    import psutil

    memory = psutil.Process().memory_full_info()
    held: int = min(memory.uss, memory.rss - getattr(memory, "shared", 0))  # Linux alone says what is of files
    return held


def _trim() -> None:
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has `malloc_trim`
        ctypes.CDLL(None).malloc_trim(0)
