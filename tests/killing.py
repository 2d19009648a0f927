"""Kill a process at a certain change of a file: every opening, renaming and removing is a place to die at."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

PLACES = ("open", "os.rename", "os.remove", "os.truncate")


def killed_at(step: int, act: Callable[[], object]) -> bool:
    """Do `act` in a process that gets kill -9 before its `step`-th change of a file; whether it came that far."""
    pid = os.fork()
    if not pid:
        try:
            _die_at(step)
            act()
            os._exit(0)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it failed before it was killed"
    return os.WIFSIGNALED(status)


def _die_at(step: int) -> None:
    seen = 0

    def count(event: str, _: object) -> None:
        nonlocal seen
        seen += event in PLACES
        if seen == step and event in PLACES:  # the killing is an event too
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
