"""A SIGTERM that is neither lost nor met at a bad moment.

Our program and Prefect turn it into an exception wherever the main thread happens to be. Two places do not bear that,
each met by one of some hundred. Where Python drops exceptions (`__del__`, callbacks of weak references) the loop went
on to its end; amid the locks of the import system one of them stayed held, and the next import waited for ever.
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
_IMPORTING = "<frozen importlib._bootstrap>"
_told: list[int] = []

Handler = Callable[[int, FrameType | None], Any]


def outside_imports(handler: Handler) -> Handler:
    """The handler, called a little later where the signal meets the import system itself."""

    def handle(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_filename == _IMPORTING:
            _send_again()
        else:
            handler(number, frame)

    return handle


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
    deferred = outside_imports(before)

    def remember(number: int, frame: FrameType | None) -> None:
        _told.append(number)
        deferred(number, frame)

    def dropped(what: Any) -> None:
        if _told and type(what.exc_value).__name__ == "TerminationSignal":
            _send_again()
        else:
            hook(what)

    _told.clear()
    signal.signal(signal.SIGTERM, remember)
    sys.unraisablehook = dropped
    try:
        yield
        heed()
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)


def heed() -> None:
    """End here if a SIGTERM is remembered.

    Raises:
        TerminationSignal: As if it came now.
    """
    if _told:
        from prefect.exceptions import TerminationSignal

        raise TerminationSignal(signal=_told[0])


def _send_again() -> None:
    """Soon, and without a lock that the interrupted code may hold: `threading` has some."""
    _thread.start_new_thread(_send_later, ())


def _send_later() -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), signal.SIGTERM)
