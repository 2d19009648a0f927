"""Process identities, and whether a process is alive: pid namespace, pid and start time are never reused together.

A host's name identifies nothing: it changes (a laptop on another network), and several hosts share one (pods with
`hostNetwork`, images called `ubuntu`). `pids` names what cannot be shared: the boot of the kernel and the pid namespace
whose members see each other. Only where the system has no such namespace (macOS), or a note of an older Loopline has no
`pids`, does the name decide. Of a process in another namespace, only a lock or a lease shows whether it is alive.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.host.locks import is_held

OWNER = "LOOPLINE_OWNER"  # the variable of every process that a loop starts
SERVICE = "LOOPLINE_SERVICE"  # the variable of every process of the platform


def unmarked(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the owner's marks, for a process that must outlive the loop that starts it."""
    return {key: value for key, value in environ.items() if key not in (OWNER, SERVICE)}


def identity(pid: int | None = None) -> dict[str, Any]:
    """Return host, pid and start time of a process, by default this one; `pids` names the pid's namespace."""
    pid = os.getpid() if pid is None else pid
    return {"host": socket.gethostname(), "pids": _numbering(), "pid": pid, "started": _start_time(pid)}


def is_here(process: Mapping[str, Any]) -> bool:
    """Return whether the pid belongs to this pid namespace; in another one the same pid is an unrelated process."""
    pids = _numbering()
    if process.get("pids", pids) != pids:
        return False
    return process.get("pids") is not None or process.get("host") == socket.gethostname()


def is_alive(process: Mapping[str, Any], lock: Path | None = None) -> bool:
    """Return whether the process with this identity still runs.

    Args:
        process: The result of `identity`, in this or another pid namespace.
        lock: A lock file that the process holds while it is alive. A process of another namespace counts as alive while
            the lock is held, and always if there is no lock.
    """
    if not is_here(process):
        return lock is None or is_held(lock)
    started = _start_time(int(process["pid"]))
    return started is not None and started == process["started"]


def is_alive_here(process: Mapping[str, Any]) -> bool:
    """Return whether the process with this identity runs in this pid namespace."""
    return is_here(process) and is_alive(process)


def _start_time(pid: int) -> str | None:
    """Return the start time of a process as a constant text; None if it is gone or a zombie.

    On Linux: the boot id and the clock ticks since boot, which do not change with the clock; elsewhere Unix seconds.
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
    """Return boot id and pid namespace, whose members see each other's processes; None if unknown."""
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
