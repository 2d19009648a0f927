"""Returns freed memory to the system between steps, because allocators keep it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

WORTH_MB = 384
"""A process that holds less for itself has little to return: libraries take up to 350."""


def release() -> None:
    """Collect garbage and return free memory to the kernel, in a process that holds more than `WORTH_MB` for itself.

    Cost: 0.2 s. It frees 250 of 613 MB in the process that has validated and prepared 336,776 rows.
    """
    import psutil

    if psutil.Process().memory_full_info().uss < WORTH_MB << 20:
        return
    gc.collect()
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has `malloc_trim`
        ctypes.CDLL(None).malloc_trim(0)
