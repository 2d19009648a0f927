"""What a command costs with everything that it starts: CPU of the living and the dead, memory counted once.

Linux only: orphans (a server that outlives its command) are adopted, so that none of their CPU is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.05


@dataclass(frozen=True)
class Measured:
    """Cost of one command.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: User and system time of it, of all that it started and that ended, and what those that still live
            (a server started before or by it) used meanwhile.
        servers_cpu_s: The part of `cpu_s` that belongs to those that still live.
        peak_mb: Largest sum of proportional set sizes over all of them, looked at twenty times a second: an export's
            own peak lasts a tenth of a second.
        output: What it printed.
    """

    wall_s: float
    cpu_s: float
    servers_cpu_s: float
    peak_mb: float
    output: str


class CommandError(Exception):
    """A measured command failed; its output is the message."""


def measure(command: Sequence[str], env: Mapping[str, str], cwd: Path, memory: bool = True) -> Measured:
    """Run a command to its end.

    Args:
        command: Program and arguments.
        env: Its whole environment.
        cwd: Where it runs.
        memory: Look at its memory too.

    Raises:
        CommandError: It ended with another code than 0.
    """
    adopt_orphans()
    servers_before = living_cpu_s()
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=env, cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        peak, pid, status, usage = 0.0, 0, 0, None
        while not pid:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not pid:
                peak = max(peak, _tree_mb() if memory else 0.0)
                time.sleep(_LOOK_S if memory else 0.002)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise CommandError(f"{' '.join(command)} ended with {process.returncode}:\n{text[-4000:]}")
    assert usage is not None
    cpu_s = usage.ru_utime + usage.ru_stime + _reap_s()
    servers_cpu_s = max(0.0, living_cpu_s() - servers_before)
    return Measured(wall_s, cpu_s + servers_cpu_s, servers_cpu_s, peak, text)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_servers() -> None:
    """End what measured commands left running, and wait until it is gone."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    _, stubborn = psutil.wait_procs(left, timeout=20)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=5)
    _reap_s()


def num_servers() -> int:
    """How many processes measured commands have left running."""
    return len([one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE])


def _reap_s() -> float:
    """CPU of adopted processes that have ended, in seconds."""
    total = 0.0
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                break
            total += usage.ru_utime + usage.ru_stime
    return total


def living_cpu_s() -> float:
    """Return the CPU-seconds of all processes that this one started, or adopted, and that still live."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _tree_mb() -> float:
    total = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024
