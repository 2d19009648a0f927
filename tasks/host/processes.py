"""Which process did something, and does it still live: host, pid and start time together are never reused.

A host can change its name (a laptop on another network, a new container), and several hosts may share a workspace. So a
process that was noted under another name is visible only if its `pids` are ours; else a lock must decide.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.host.locks import is_held

OWNER = "LOOPLINE_OWNER"  # on every process that a loop starts
SERVICE = "LOOPLINE_SERVICE"  # on every process of the platform


def unmarked(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without its owner's marks, for a process that shall outlive the loop that starts it."""
    return {key: value for key, value in environ.items() if key not in (OWNER, SERVICE)}


def identity(pid: int | None = None) -> dict[str, Any]:
    """Host, pid and start time of a process, this one by default; `pids` is the numbering that the pid is of."""
    pid = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pids": _numbering(), "pid": pid, "started": _start_time(pid)}


def is_here(process: Mapping[str, Any]) -> bool:
    """Whether its pid is one of this host's: never signal one that is not, it is a stranger's here."""
    if process.get("host") == socket.gethostname():
        return True
    return process.get("pids") is not None and process["pids"] == _numbering()


def is_alive(process: Mapping[str, Any], lock: Path | None = None) -> bool:
    """Whether the process of that identity still runs.

    Args:
        process: The result of `identity`, here or on another host.
        lock: A lock file that it holds while it lives. One on another host, which we cannot see, lives while that is
            held; where there is no such lock it is taken to live.
    """
    if not is_here(process):
        return lock is None or is_held(lock)
    started = _start_time(int(process["pid"]))
    return started is not None and started == process["started"]


def is_alive_here(process: Mapping[str, Any]) -> bool:
    """Whether the process of that identity runs on this host."""
    return is_here(process) and is_alive(process)


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
    return None if state == "Z" else f"{_boot()}/{fields[18]}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def _numbering() -> str | None:
    """The boot and its pid namespace: processes with the same value see each other's pids. None if unknown."""
    with contextlib.suppress(OSError):
        return f"{_boot()}/{Path('/proc/self/ns/pid').readlink()}"
    return None


def _start_time_by_clock(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.1f}"
    except psutil.NoSuchProcess:
        return None
