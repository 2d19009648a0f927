"""Which process did something, and does it still live: host, pid and start time together are never reused."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OWNER = "LOOPLINE_OWNER"  # on every process that a loop starts
SERVICE = "LOOPLINE_SERVICE"  # on every process of the platform


def unmarked(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without its owner's marks, for a process that shall outlive the loop that starts it."""
    return {key: value for key, value in environ.items() if key not in (OWNER, SERVICE)}


def identity(pid: int | None = None) -> dict[str, Any]:
    """Host, pid and start time of a process, this one by default."""
    pid = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pid": pid, "started": _start_time(pid)}


def is_alive(process: dict[str, Any]) -> bool:
    """Whether the process of that identity still runs. One on another host is taken to live: we cannot see it."""
    if process.get("host") != socket.gethostname():
        return True
    started = _start_time(int(process["pid"]))
    return started is not None and started == process["started"]


def _start_time(pid: int) -> str | None:
    """When a process started, in words that never change while it lives; None for one that is gone or a zombie.

    Linux: boot and clock ticks since it, which no setting of the clock moves; elsewhere Unix seconds.
    """
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return _start_time_by_clock(pid)
    try:
        state, *fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return None if state == "Z" else f"{boot}/{fields[18]}"


def _start_time_by_clock(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.1f}"
    except psutil.NoSuchProcess:
        return None
