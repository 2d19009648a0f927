"""Signal handling of programs: end at once by an exception, or after the work in progress.

A signal handler runs between two bytecodes of the main thread. A handler that takes a lock (`threading.Event.set`,
logging, print) waits for ever if that thread holds it. So a handler here raises, or sets an attribute and writes to a
pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

LOOK_S = 1.0


class StopRequest:
    """Whether this process shall end. Unlike `threading.Event` it can be set by a signal handler.

    The pipe wakes a waiting thread: `time.sleep` would continue after the handler.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._reader, self._writer = os.pipe()

    def on(self, *numbers: signal.Signals) -> None:
        """Have these signals set it; from the main thread."""
        for number in numbers:
            signal.signal(number, lambda *_: self.set())

    def set(self) -> None:
        """Ask for the end. A second time does nothing: the pipe never fills."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b".")

    def is_set(self) -> bool:
        """Whether the end was requested."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set or the time is over; returns whether it is set.

        The handler runs in the main thread alone, between two bytecodes. A signal that the kernel gives to another
        thread, or just before the system call begins, does not end that call: so none lasts for more than LOOK_S.
        """
        end = time.monotonic() + timeout_s
        while not self._is_set and (left := end - time.monotonic()) > 0:
            select.select([self._reader], [], [], min(left, LOOK_S))
        return self._is_set

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


def exit_on(number: signal.Signals) -> None:
    """Have a signal end this process as `sys.exit(0)` does, so that `finally` blocks run; from the main thread."""
    signal.signal(number, lambda *_: sys.exit(0))
