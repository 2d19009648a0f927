"""A SIGTERM ends the block, now or at the next place where it is asked for."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from prefect.exceptions import TerminationSignal
from prefect.utilities.engine import capture_sigterm

from flows.prefect.sigterm import AGAIN_S, heed, remembered, well_timed

heard: list[int] = []


@pytest.fixture(autouse=True)
def _ended_in_vain() -> Iterator[None]:
    """What Prefect does after its flow: the handler before it hears of the signal too."""
    before = signal.signal(signal.SIGTERM, well_timed(lambda *_: heard.append(signal.SIGTERM)))
    heard.clear()
    yield
    signal.signal(signal.SIGTERM, before)


def flow(*steps: Callable[[], object]) -> list[Callable[[], object]]:
    """What was done of a flow's steps, each called within Prefect's and our own care, until it ended by a SIGTERM."""
    done = []

    def play() -> None:
        with capture_sigterm(), remembered():
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


def told_in_vain() -> None:
    with contextlib.suppress(BaseException):
        told()


def test_one_whose_exception_was_swallowed_ends_at_the_next_question() -> None:
    assert flow(told_in_vain, heed, heed) == [told_in_vain]


class Dying:
    """Is told while it goes, which is where Python drops exceptions."""

    def __del__(self) -> None:
        told()


def test_one_that_python_dropped_comes_again_in_the_middle_of_a_step() -> None:
    def gone() -> None:
        Dying()

    def long_step() -> None:
        time.sleep(30)

    assert flow(gone, long_step) == [gone]


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


def test_one_that_was_heeded_is_not_met_again_on_the_way_out() -> None:
    """It met an import, was to be sent again, and the next step asked before that: its books were not closed."""
    importing = compile("module_body()", "<frozen importlib._bootstrap>", "exec")
    closed: list[str] = []

    def step() -> None:
        try:
            exec(importing, {"module_body": told})
            heed()
        finally:
            time.sleep(10 * AGAIN_S)
            closed.append("books")

    assert flow(step) == []
    assert closed == ["books"]


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


def test_nobody_asked_it_ends_with_the_block() -> None:
    assert flow(told_in_vain) == [told_in_vain]


def test_one_that_is_not_swallowed_ends_at_once() -> None:
    assert flow(heed, told, heed) == [heed]


def test_the_next_block_knows_nothing_of_it() -> None:
    flow(told_in_vain)
    with capture_sigterm(), remembered():
        heed()


def test_a_flow_in_a_thread_has_no_signals() -> None:
    met: list[str] = []

    def play() -> None:
        with remembered():
            met.append("played")

    thread = threading.Thread(target=play)
    thread.start()
    thread.join()
    assert met == ["played"]
