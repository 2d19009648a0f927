"""Ends a process when its parent ends, also when the parent is killed.

`python parent_death.py PID SIGNAL COMMAND...` runs the command, tied to the process PID. It imports no Loopline module
and calls the kernel before any slow work. On other systems than Linux it only detects a parent that has ended already.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Make the kernel send this process a signal when its parent dies; exit if the parent is dead already.

    Args:
        parent: The process id of the parent. The kernel watches the parent's thread: the thread that started this
            process must live as long as the parent.
        number: The signal.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, number)
    if os.getppid() != parent:
        os._exit(1)


def ends_with_parent(arguments: list[str]) -> list[str]:
    """Return the command of a Python process that gets a SIGTERM when this process dies.

    Use: `subprocess.Popen(ends_with_parent(launched(MODULE, ...)))`.

    Cost: 10 ms of CPU; `preexec_fn` would be faster, but could hang in a process with threads.
    """
    return [sys.executable, "-IS", __file__, str(os.getpid()), sys.executable, *arguments]


if __name__ == "__main__":
    die_with(int(sys.argv[1]), signal.SIGTERM)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - `ends_with_parent` made the command
