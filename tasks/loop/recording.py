"""What the page of a loop and the loop tell each other, as rows of the outbox, on this machine or another one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

from models.errors import StoreError
from tasks.loop.loop import Loop, Reporter
from tasks.state.outbox import STOP, Outbox

PROGRESS_S = 1.0
"""The least time between two recorded lines of progress of a step: a page looks once a second."""
LOOK_S = 2.0
"""How often a loop looks for a request to stop it. Cost: one query, which reads the index."""
STOP_SIGNAL = signal.SIGUSR1
"""The signal by which a loop's process interrupts itself as Ctrl-C would; `flows/prefect/sigterm.py` handles it."""


@contextlib.contextmanager
def recorded(loop: Loop, stops: StopRequests) -> Iterator[None]:
    """Record what a loop reports in the block, which ends when a person asks for it on the loop's page."""
    reporter = loop.report
    loop.report = RecordingReporter(reporter, loop.outbox)
    try:
        with stops:
            yield
    finally:
        loop.report = reporter  # the log of a loop ends with the loop


class RecordingReporter:
    """Passes on what a loop reports, and records it for the loop's page.

    Args:
        reporter: The reporter for whoever started the loop.
        outbox: The loop's outbox.
    """

    def __init__(self, reporter: Reporter, outbox: Outbox) -> None:
        self._reporter = reporter
        self._outbox = outbox
        self._last: dict[str, float] = {}

    def step(self, name: str, state: str, detail: str = "") -> None:
        """Record every state of a step."""
        self._record(name, state, detail)
        self._reporter.step(name, state, detail)

    def progress(self, name: str, count: int, total: int, detail: str = "") -> None:
        """Record the progress of a step at most every `PROGRESS_S`, and always its last unit."""
        if count >= total or time.monotonic() - self._last.get(name, float("-inf")) >= PROGRESS_S:
            self._last[name] = time.monotonic()
            self._record(name, "progress", detail, count, total)
        self._reporter.progress(name, count, total, detail)

    def note(self, text: str) -> None:
        """Record a line of text."""
        self._record("", "note", text)
        self._reporter.note(text)

    def _record(self, step: str, state: str, text: str, count: int = 0, total: int = 0) -> None:
        with contextlib.suppress(StoreError):  # a page that lacks a line ends no loop; a lost lease ends it elsewhere
            self._outbox.log(step, state, text, count, total)


class StopRequests:
    """A thread that interrupts this process when a person asks on the loop's page that it stops.

    It sends `STOP_SIGNAL`, if this process handles it. Requests from before this object was made do not count:
    make it before the loop's page offers to stop.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._seen = outbox.last_number()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loopline-stop", daemon=True)

    def __enter__(self) -> StopRequests:
        if callable(signal.getsignal(STOP_SIGNAL)):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            with contextlib.suppress(StoreError):  # the next look may be luckier
                lines = self._outbox.lines(self._seen)
                self._seen = max(lines, default=self._seen)
                if any(line["op"] == STOP and line["is_signal"] for line in lines.values()) and not self._over.is_set():
                    os.kill(os.getpid(), STOP_SIGNAL)
