"""SIGTERM handling: a signal is neither lost nor handled at a bad moment.

Loopline and Prefect turn SIGTERM into an exception at the main thread's current position. Three kinds of positions do
not survive that; one in some hundred signals hits each of them:
- Where Python drops exceptions (`__del__`, callbacks of weak references), the loop went on to its end.
- During an import, a lock of the import system stayed held, and the next import in any thread waited forever; or a
  module that the shutdown needs stayed half imported.
- If a Python function that takes a lock (`Condition.__enter__`) does not return, nobody releases the lock.

So a signal in such a position is sent again. If it was handled meanwhile, it must not be handled a second time during
the shutdown, which records the loop's end.
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
"""The longest delay of a signal: a program that runs within an import must end too."""
_IMPORTING = "<frozen importlib._bootstrap>"
_LOCKING = {"__enter__", "acquire"}
_LOCKS = ("threading.py", "logging/__init__.py", "httpcore/_synchronization.py")
ECHO_S = 5.0
"""Signals within this time after a signal's exception are ignored as its echo."""
_notify: list[int] = []
_raised: list[float] = []

Handler = Callable[[int, FrameType | None], Any]


def well_timed(handler: Handler) -> Handler:
    """Return a handler that delays a signal until no import runs and no lock is being taken."""
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
    """Return whether the frame is taking a lock; a wait for a thread or an event is safe to interrupt."""
    return frame is not None and frame.f_code.co_name in _LOCKING and frame.f_code.co_filename.endswith(_LOCKS)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Remember a SIGTERM in the block, and send it again if Python dropped its exception; see `heed`.

    Raises:
        TerminationSignal: A SIGTERM came, and its exception was swallowed.
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
        _raised.clear()  # so that the previous handler also gets the signal
        signal.signal(signal.SIGTERM, before)


def heed() -> None:
    """Raise now if a SIGTERM is remembered.

    Raises:
        TerminationSignal: A SIGTERM came in the block of `remembered`.
    """
    if _notify:
        from prefect.exceptions import TerminationSignal

        _raised.append(time.monotonic())
        raise TerminationSignal(signal=_notify[0])


def _send_again() -> None:
    """Send the signal again soon; `threading` is not used, because the interrupted code may hold one of its locks."""
    _thread.start_new_thread(_send_later, ())


def _send_later() -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), signal.SIGTERM)
