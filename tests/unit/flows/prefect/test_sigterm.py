"""A SIGTERM ends the block where that does no harm, and the process in time, whatever becomes of its exception."""

import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from prefect.exceptions import TerminationSignal
from prefect.utilities.engine import capture_sigterm

from flows.prefect import sigterm
from flows.prefect.sigterm import timed, well_timed
from tests.children import started

heard: list[int] = []


@pytest.fixture(autouse=True)
def _handler_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What Prefect does after its flow: the handler before it hears of the signal too. The tests' process goes on."""
    monkeypatch.setattr(sigterm, "_end", lambda _: None)
    before = signal.signal(signal.SIGTERM, well_timed(lambda *_: heard.append(signal.SIGTERM)))
    heard.clear()
    yield
    signal.signal(signal.SIGTERM, before)


def flow(*steps: Callable[[], object]) -> list[Callable[[], object]]:
    """What was done of a flow's steps, each called within Prefect's and our own care, until it ended by a SIGTERM."""
    done = []

    def play() -> None:
        with capture_sigterm(), timed():
            for step in steps:
                step()
                done.append(step)

    with pytest.raises(TerminationSignal) as ended:
        play()
    assert heard == [signal.SIGTERM]
    assert ended.value.signal == signal.SIGTERM
    return done


def told() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class Dying:
    """Is told while it goes, which is where Python drops exceptions."""

    def __del__(self) -> None:
        told()


class Watched:
    """Goes, and what holds a weak reference to it is told: a function of any module, called by the interpreter."""


def is_deleted() -> None:
    Dying()


def is_collected() -> None:
    watched = Watched()
    watcher = weakref.ref(watched, lambda _: told())
    del watched
    assert watcher() is None


@pytest.mark.parametrize("gone", [is_deleted, is_collected])
def test_one_that_python_dropped_comes_again_in_the_middle_of_a_step(gone: Callable[[], None]) -> None:
    def long_step() -> None:
        time.sleep(30)

    assert flow(gone, long_step) == [gone]


class Replacing:
    """Its finalizer fails too, so Python drops another error than that of the signal."""

    def __del__(self) -> None:
        try:
            told()
        finally:
            int("x")


class Failing:
    def __del__(self) -> None:
        int("x")


def test_one_that_a_finalizer_replaced_by_its_own_error_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: printed.append(dropped.exc_type))

    def is_replaced() -> None:
        Replacing()

    def long_step() -> None:
        time.sleep(30)

    assert flow(is_replaced, long_step) == [is_replaced]
    assert printed == [ValueError]


def test_a_finalizer_that_fails_during_the_cleanup_does_not_send_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: printed.append(dropped.exc_type))
    cleaned = []

    def step() -> None:
        try:
            told()
        finally:
            Failing()
            time.sleep(5 * sigterm.AGAIN_S)
            cleaned.append(step)

    assert flow(step) == []
    assert (printed, cleaned) == ([ValueError], [step])


def test_what_else_python_drops_is_printed_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[type[BaseException] | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: printed.append(dropped.exc_type))

    def other_error_is_dropped() -> None:
        watcher = weakref.ref(watched := Watched(), lambda _: int("x"))
        del watched
        assert watcher() is None

    with pytest.raises(TerminationSignal), capture_sigterm(), timed():
        told()
    other_error_is_dropped()
    assert printed == [ValueError]


def test_one_that_meets_an_import_comes_again_when_it_is_over() -> None:
    met: list[str] = []

    def handle(_: int, frame: FrameType | None) -> None:
        assert frame is not None
        met.append(frame.f_code.co_filename)

    before = signal.signal(signal.SIGTERM, well_timed(handle))
    importing = compile("module_body()", "<frozen importlib._bootstrap>", "exec")
    exec(importing, {"module_body": told})
    assert not met
    deadline = time.monotonic() + 30
    while not met and time.monotonic() < deadline:
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, before)
    assert met == [__file__]


def test_one_that_meets_a_lock_being_taken_leaves_it_free() -> None:
    """The window is that between the lock's own `acquire` and the return of the function around it."""

    class MetError(Exception):
        pass

    def handle(_: int, __: FrameType | None) -> None:
        raise MetError

    class Lock:
        """One that is told as soon as it is taken."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def acquire(self, *arguments: object) -> bool:
            return self.lock.acquire()

        def release(self) -> None:
            self.lock.release()

        def __enter__(self) -> bool:
            self.acquire()
            signal.raise_signal(signal.SIGTERM)
            return True

        def __exit__(self, *_: object) -> None:
            self.release()

    before = signal.signal(signal.SIGTERM, well_timed(handle))
    lock = Lock()
    told_within = Lock.__enter__.__code__.replace(co_filename=threading.__file__)
    Lock.__enter__.__code__ = told_within
    try:
        with pytest.raises(MetError), lock:
            time.sleep(30)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not lock.lock.locked()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="logging takes its lock without a function around it")
@pytest.mark.parametrize("call", ["acquire", "release"])
def test_one_that_meets_the_lock_of_logging_comes_later(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    met: list[str] = []

    def handle(_: int, frame: FrameType | None) -> None:
        assert frame is not None
        met.append(frame.f_code.co_filename)

    before = signal.signal(signal.SIGTERM, well_timed(handle))
    tell = {"acquire": int, "release": int, call: functools.partial(signal.raise_signal, signal.SIGTERM)}
    monkeypatch.setattr(logging, "_lock", types.SimpleNamespace(**tell))
    logging.addLevelName(5, "five")
    monkeypatch.undo()
    deadline = time.monotonic() + 30
    while not met and time.monotonic() < deadline:
        time.sleep(0.01)
    signal.signal(signal.SIGTERM, before)
    assert met == [__file__]


def test_it_ends_the_step_at_once() -> None:
    assert flow(time.monotonic, told, time.monotonic) == [time.monotonic]


def test_a_second_one_does_not_interrupt_the_way_out() -> None:
    closed: list[str] = []

    def step() -> None:
        try:
            told()
        finally:
            told()
            closed.append("books")

    assert flow(step) == []
    assert closed == ["books"]


SWALLOWED = "raise RuntimeError"
HANGING = "lock.acquire()"
ENDING = """
import signal, threading, time
from flows.prefect import sigterm
lock = threading.Lock()
lock.acquire()
def handle(*_):
    {act}
sigterm.END_S = 0.3
signal.signal(signal.SIGTERM, sigterm.well_timed(handle))
while True:
    try:
        print(flush=True)
        time.sleep(30)
    except RuntimeError:
        pass
"""


@pytest.mark.parametrize("act", [SWALLOWED, HANGING])
def test_one_whose_exception_is_swallowed_or_that_hangs_ends_the_process_in_time(act: str) -> None:
    with started([sys.executable, "-c", ENDING.format(act=act)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM


def test_a_flow_in_a_thread_has_no_signals() -> None:
    met: list[str] = []

    def play() -> None:
        with timed():
            met.append("played")

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert met == ["played"]
