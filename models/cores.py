"""Number of cores that this process may use: its CPU affinity, and the CPU quota of a container."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores to keep busy, at least one: with more threads than these a container is halted for most of each period."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(have, _quota())))


def _quota() -> float:
    """Cores' worth of time that the container's limit allows; infinite without one.

    Source: the kernel's cgroup-v2.rst (`cpu.max`) and sched-bwc.rst (version 1).
    """
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf
