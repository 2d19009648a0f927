"""Processes that end with the one that started them, also when that one is killed.

`python parent_death.py PID COMMAND...` becomes the command, tied to the process PID. It imports nothing of ours, and
asks the kernel before anything that takes time. Linux; elsewhere only a parent that is gone already is noticed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies; end here if it is dead already.

    Args:
        parent: The process id of the parent. The kernel goes by its thread: the one that started this process must
            live as long as the parent.
        number: The signal.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, number)
    if os.getppid() != parent:
        os._exit(1)


def ends_with_parent(arguments: list[str], number: int = signal.SIGTERM) -> list[str]:
    """The command for a Python process that gets a signal when this one dies: `subprocess.Popen(tied(["-m", ...]))`.

    The folder in which it is started is not searched for modules: a user's own `tasks/` there is none of ours.

    Cost: 10 ms of CPU; in a process with threads `preexec_fn` would be quicker, and could hang.
    """
    return [sys.executable, "-IS", __file__, str(os.getpid()), str(int(number)), sys.executable, "-P", *arguments]


if __name__ == "__main__":
    die_with(int(sys.argv[1]), int(sys.argv[2]))
    os.execv(sys.argv[3], sys.argv[3:])  # noqa: S606 - of our own making
