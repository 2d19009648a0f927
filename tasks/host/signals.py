"""Signal handling: a program ends at once by an exception, or after its current work.

A signal handler runs between two bytecodes of the main thread. A handler that takes a lock (`threading.Event.set`,
logging, print) deadlocks if that thread holds the lock. So a handler here raises, or sets an attribute and writes to a
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
    """A request to end this process; unlike `threading.Event`, a signal handler can set it.

    The pipe wakes the waiting thread: `time.sleep` would continue after the handler.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._reader, self._writer = os.pipe()

    def on(self, *numbers: signal.Signals) -> None:
        """Let these signals set the request; call this from the main thread."""
        for number in numbers:
            signal.signal(number, lambda *_: self.set())

    def set(self) -> None:
        """Request the end; a second call does nothing, so the pipe never fills."""
        if not self._is_set:
            self._is_set = True
            os.write(self._writer, b".")

    def is_set(self) -> bool:
        """Return whether the end was requested."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait until the request is set or the timeout ends; return whether it is set.

        The handler runs only in the main thread, between two bytecodes. A signal that the kernel delivers to another
        thread, or just before the system call begins, does not interrupt the call: so no call waits longer than LOOK_S.
        """
        end = time.monotonic() + timeout_s
        while not self._is_set and (left := end - time.monotonic()) > 0:
            select.select([self._reader], [], [], min(left, LOOK_S))
        return self._is_set

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


def exit_on(number: signal.Signals) -> None:
    """Let a signal end this process like `sys.exit(0)`, so that `finally` blocks run; call it from the main thread."""
    signal.signal(number, lambda *_: sys.exit(0))
