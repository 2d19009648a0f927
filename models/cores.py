"""The cores, GPUs and memory that this process may use: CPU affinity, the container's limits, the kernel's devices."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
DEVICES = Path("/dev")
OWN_GROUPS = Path("/proc/self/cgroup")


WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000", "OPENBLAS_NUM_THREADS": "1"}
"""Threads that wait for each other spin for some microseconds, then sleep (docs/decisions/0005).

The threads of NumPy's and SciPy's OpenBLAS can only spin, so there are none: they made a calibration 8 to 25 times as
costly (docs/decisions/0106). Torch and OpenMP have their own.
"""


def usable_cores() -> int:
    """Return the number of usable cores, at least one; with more threads a container is throttled most of the time."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(have, _quota())))


def usable_gpus(visible: str | None = None) -> int | None:
    """Return the number of GPUs that training would use; None if it is unknown (AMD, WSL, other systems than Linux).

    torch is not imported: it would take seconds.

    Args:
        visible: The value of CUDA_VISIBLE_DEVICES, if it is set: names of GPUs up to the first that is none.
    """
    if metadata.version("torch").endswith("+cpu"):
        return 0
    if not sys.platform.startswith("linux") or any((DEVICES / name).exists() for name in ("kfd", "dxg")):
        return None
    count = len(list(DEVICES.glob("nvidia[0-9]*")))
    if visible is None:
        return count
    names = [*itertools.takewhile(lambda name: name not in ("", "-1"), map(str.strip, visible.split(",")))]
    return len(names) if any(name.startswith("MIG") for name in names) else min(count, len(names))


def usable_memory() -> float:
    """Return the bytes of this machine's memory and swap, up to the limit of the process's groups or of the container.

    Source: the kernel's cgroups.rst (`/proc/PID/cgroup`), cgroup-v2.rst (`memory.max`) and memory.rst of version 1.
    """
    import psutil

    whole = float(psutil.virtual_memory().total + psutil.swap_memory().total)
    for path in _memory_limits():
        with contextlib.suppress(OSError, ValueError):
            whole = min(whole, float(path.read_text()))
    return whole


def _memory_limits() -> Iterator[Path]:
    """Yield the files that may hold a limit: of the process's group, and of all groups around it."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = OWN_GROUPS.read_text().splitlines()
    groups = {names: group for _, names, group in (line.split(":", 2) for line in lines)}
    roots = {"": (CGROUP, "memory.max"), "memory": (CGROUP / "memory", "memory.limit_in_bytes")}
    for names, (root, file) in roots.items():
        group = Path(groups.get(names, "/").lstrip("/"))
        yield from (root / folder / file for folder in (group, *group.parents))


def cpu_seconds() -> float:
    """Return the CPU-seconds of this process, its descendants and those of them that have ended and were waited for."""
    import psutil

    def spent(process: psutil.Process) -> float:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            return sum(getattr(times, name, 0.0) for name in ("user", "system", "children_user", "children_system"))
        return 0.0

    ours = psutil.Process()
    return sum(map(spent, [ours, *ours.children(recursive=True)]))


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
