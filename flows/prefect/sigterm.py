"""SIGTERM handling: the signal raises an exception where that does no harm, and always ends the process in time.

Loopline and Prefect turn SIGTERM into an exception at the main thread's current position. Three kinds of positions do
not survive that; one in some hundred signals hits each of them:
- During an import, a lock of the import system stays held, and the next import in any thread waits forever; or a
  module that the shutdown needs stays half imported.
- If a Python function that takes a lock (`Condition.__enter__`) does not return, or one that releases it
  (`logging._releaseLock`) does not begin, nobody releases the lock.
- In a finalizer (`__del__`, a callback of a weak reference), Python drops the exception, or one that the finalizer
  raised in its place, and the loop goes on.

A signal in one of the first two positions, or whose exception was dropped, is sent again. Whatever else goes wrong,
such as an exception that a library swallows or a shutdown that hangs, is ended after END_S as by SIGKILL: no finished
work is lost, and the reaper records the end.
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
STOPPED = "a person stopped it on its page"
END_S = 25.0
"""The longest time from a SIGTERM to the end of the process; Kubernetes kills it after 30 s."""
_IMPORTING = "<frozen importlib._bootstrap>"
_LOCKING = {"__enter__", "acquire", "_acquireLock", "__exit__", "release", "_releaseLock", "_clear_cache"}
_LOCKS = ("threading.py", "logging/__init__.py", "httpcore/_synchronization.py")

Handler = Callable[[int, FrameType | None], Any]


def well_timed(handler: Handler) -> Handler:
    """Return a handler that calls `handler` once, where an exception does no harm, and ends the process after END_S."""
    has_begun = is_done = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal has_begun, is_done
        if not has_begun:
            has_begun = True
            _thread.start_new_thread(_end, (number,))
        if not is_done and not (_is_at_a_lock(frame) or _is_importing(frame)):
            is_done = True
            try:
                handler(number, frame)
            except BaseException as error:
                _watch(error, lambda: begin_again(number))
                raise
        elif not is_done:
            begin_again(number)

    def begin_again(number: int) -> None:
        nonlocal is_done
        is_done = False
        _thread.start_new_thread(_send_again, (number,))  # not `threading`: the main thread may hold its locks

    return handle


@contextlib.contextmanager
def timed() -> Iterator[None]:
    """Time the current handler of SIGTERM well in the block: in a flow, that is Prefect's."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGTERM, well_timed(before))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def stoppable(number: signal.Signals) -> Iterator[None]:
    """Let a signal interrupt the block as Ctrl-C does, well timed: a person asked for it on the loop's page."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, well_timed(_interrupt))
    try:
        yield
    finally:
        signal.signal(number, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt(STOPPED)


def _is_at_a_lock(frame: FrameType | None) -> bool:
    """Return whether the frame takes or releases a lock; a wait for a thread or an event is safe to interrupt."""
    return frame is not None and frame.f_code.co_name in _LOCKING and frame.f_code.co_filename.endswith(_LOCKS)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether the frame is called by an import."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _watch(error: BaseException, dropped: Callable[[], None]) -> None:
    """Call `dropped` if Python drops the error, in place of printing it, or another error in its place."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if _is_lost(error, unraisable.exc_value):
            sys.unraisablehook = before
            dropped()
        if unraisable.exc_value is not error:
            before(unraisable)

    sys.unraisablehook = hook


def _is_lost(error: BaseException, dropped: BaseException | None) -> bool:
    """Return whether the error was dropped, or replaced by the dropped one on its way out of the same call.

    Their tracebacks share no frame if the dropped one was raised while a cleanup handles the error, which goes on.
    """
    earlier = dropped
    while earlier is not None and earlier is not error:
        earlier = earlier.__context__
    if dropped is None or earlier is None:
        return False
    return dropped is error or not {*_frames(error)}.isdisjoint(_frames(dropped))


def _frames(error: BaseException) -> list[FrameType]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


def _send_again(number: int) -> None:
    time.sleep(AGAIN_S)
    os.kill(os.getpid(), number)


def _end(number: int) -> None:
    time.sleep(END_S)
    os._exit(128 + number)
