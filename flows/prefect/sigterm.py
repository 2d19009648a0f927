"""SIGTERM handling: a signal is neither lost nor handled at a bad moment.

Our program and Prefect turn SIGTERM into an exception at whatever the main thread does. That fails in some places, each
of which was hit by one of some hundred signals. Python drops exceptions in `__del__` and in callbacks of weak
references, so the loop continued to its end. Within an import a lock of the import system stayed locked, so the next
import, in any thread, waited for ever; or a module stayed half imported, and the shutdown needed it. A lock that is
acquired in a Python function (`Condition.__enter__`) stays locked when that function does not return. So a signal may
be sent again later; a signal that was handled meanwhile must not be handled once more during the shutdown, which writes
the state of the loop.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

AGAIN_S = 0.02
LONGEST_S = 20.0
"""A program that runs within an import must end too."""
_IMPORTING = "<frozen importlib._bootstrap>"
_LOCKING = {"__enter__", "acquire"}
_LOCKS = ("threading.py", "logging/__init__.py", "httpcore/_synchronization.py")
ECHO_S = 5.0
"""So long after an exception was raised for a signal, another one is taken for its echo."""
_notify: list[int] = []
_raised: list[float] = []

Handler = Callable[[int, FrameType | None], Any]


def well_timed(handler: Handler) -> Handler:
    """The handler, called as soon as a signal meets no import and no lock that is just being taken."""
    until = float("inf")
    _raised.clear()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal until
        if _raised and time.monotonic() - _raised[-1] < ECHO_S:
            return
        until = min(until, time.monotonic() + LONGEST_S)
        if (_is_taking_a_lock(frame) or _is_importing(frame)) and time.monotonic() < until:
            _send_again()
        else:
            _raised.append(time.monotonic())
            handler(number, frame)

    return handle


def _is_taking_a_lock(frame: FrameType | None) -> bool:
    """Whether the frame acquires a lock. Waiting for a thread or an event does not count: it may be interrupted."""
    return frame is not None and frame.f_code.co_name in _LOCKING and frame.f_code.co_filename.endswith(_LOCKS)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Remember a SIGTERM that comes in the block, and send it again where Python dropped its exception; see `heed`.

    Raises:
        TerminationSignal: One came, and its exception was swallowed.
    """
    before, hook = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    deferred = well_timed(before)

    def remember(number: int, frame: FrameType | None) -> None:
        _notify.append(number)
        deferred(number, frame)

    def dropped(what: Any) -> None:
        if _notify and type(what.exc_value).__name__ == "TerminationSignal":
            _raised.clear()
            _send_again()
        else:
            hook(what)

    _notify.clear()
    signal.signal(signal.SIGTERM, remember)
    sys.unraisablehook = dropped
    try:
        yield
        heed()
    finally:
        sys.unraisablehook = hook
        _raised.clear()  # the handler before ours is to hear of it too
        signal.signal(signal.SIGTERM, before)


def heed() -> None:
    """End here if a SIGTERM is remembered.

    Raises:
        TerminationSignal: As if it came now.
    """
    if _notify:
        from prefect.exceptions import TerminationSignal

        _raised.append(time.monotonic())
        raise TerminationSignal(signal=_notify[0])


def _send_again() -> None:
    """Soon, and without a lock that the interrupted code may hold: `threading` has some."""
    _thread.start_new_thread(_send_later, ())


def _send_later() -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), signal.SIGTERM)
