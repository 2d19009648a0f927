"""The number of cores that this process may use, from its CPU affinity and its container's CPU limit."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
DEVICES = Path("/dev")


def usable_cores() -> int:
    """Return the number of usable cores, at least one; with more threads a container is throttled most of the time."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(have, _quota())))


def has_gpu() -> bool:
    """Whether the kernel shows a GPU (NVIDIA, AMD, WSL); True on other systems than Linux, where that is unknown."""
    if not sys.platform.startswith("linux"):
        return True
    return any(DEVICES.glob("nvidia[0-9]*")) or any((DEVICES / name).exists() for name in ("kfd", "dxg"))


def _quota() -> float:
    """Return the CPU limit of the container in cores; infinity without a limit.

    Source: the kernel's cgroup-v2.rst (`cpu.max`) and sched-bwc.rst (version 1).
    """
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf
