"""Dynamic batching and backpressure: a quick call runs at once; a slow one queues for a thread of its own.

There is no timer: the thread takes all requests that queued for a model while it was busy as one batch, so a single
caller never waits for others. Models take turns. A call in the event loop saves the hand-over to the thread (0.1 ms)
and blocks other requests as long as it takes, so only quick calls run there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.inference.loaded_model import LoadedModel, Prediction
from models.inference.predict import Feed
from models.serving import http_errors

INLINE_MS = 0.5
INLINE_ROWS = 64
MOST_ROWS = 256
"""Rows of a batch: past that a call of a small model takes longer, and gains little a row."""
MOST_WAITING = 256
STUCK_S = 60.0
DEADLINE_S = 30.0
"""What a caller waits at most who does not say so."""


@dataclass(eq=False, slots=True)
class QueuedCall:
    """A call that queues. `shape`: calls of the same shape can be made as one."""

    served: LoadedModel
    feed: Feed
    rows: int
    deadline: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Prediction]
    shape: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = tuple((name, values.shape[1:], values.dtype.char) for name, values in self.feed.items())


class DynamicBatcher:
    """Makes the calls of one process.

    Args:
        most_waiting: How many calls may queue; one more is refused.
        inline_ms: A model whose call takes less than this is not queued for; 0: every call queues.
    """

    def __init__(self, most_waiting: int = MOST_WAITING, inline_ms: float = INLINE_MS) -> None:
        self._most, self._inline_ms = most_waiting, inline_ms
        self._queues: dict[str, deque[QueuedCall]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._busy_since: float | None = None
        self.waiting = 0

    async def answer(self, served: LoadedModel, feed: Feed, deadline: float) -> Prediction:
        """Return the answer of a version to some rows.

        Args:
            served: The version.
            feed: The inputs of the graph.
            deadline: When the caller stops waiting, by `time.monotonic`.

        Raises:
            Refusal: The queue is full, or the deadline passed.
        """
        rows = len(next(iter(feed.values())))
        if self._is_quick(served, rows):
            if time.monotonic() > deadline:
                raise _late()
            return served.answer(feed)
        await asyncio.sleep(0)  # a caller that has no task yet gets one: see `tasks.serve.fast_path`
        loop = asyncio.get_running_loop()
        waiting = QueuedCall(served, feed, rows, deadline, loop, loop.create_future())
        self._enter(waiting)
        try:
            async with asyncio.timeout_at(loop.time() + deadline - time.monotonic()):
                return await waiting.future
        except TimeoutError:
            raise _late() from None

    def _is_quick(self, served: LoadedModel, rows: int) -> bool:
        """Whether the next call is expected to be quick; texts vary in length, so their past calls are no guide."""
        is_small = rows <= INLINE_ROWS and served.preparation.characters is None
        return is_small and served.call_ms < self._inline_ms

    @property
    def is_stuck(self) -> bool:
        """Whether one call has taken so long that it will hardly end."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > STUCK_S

    def close(self) -> None:
        """Answer what queues, then end the thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(STUCK_S)

    def _enter(self, waiting: QueuedCall) -> None:
        with self._changed:
            if self._is_over:
                raise http_errors.busy("the server is ending: ask again")
            if self.waiting >= self._most:
                after_s = max(1, round(self.waiting * waiting.served.call_ms / 1e3))
                raise http_errors.busy(f"{self.waiting} calls wait already: ask again in {after_s} s", after_s)
            self._queues.setdefault(waiting.served.project, deque()).append(waiting)
            self.waiting += 1
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="loopline-engine", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._busy_since = time.monotonic()
            _make(batch)
            self._busy_since = None

    def _next(self) -> list[QueuedCall] | None:
        """The next batch; None when it is over and nothing queues."""
        with self._changed:
            while not self.waiting:
                if self._is_over:
                    return None
                self._changed.wait()
            project = next(iter(self._queues))
            queue = self._queues.pop(project)
            batch = _batch(queue)
            self.waiting -= len(batch)
            if queue:
                self._queues[project] = queue  # behind the others: models take turns
            return batch


def _batch(queue: deque[QueuedCall]) -> list[QueuedCall]:
    """Take the calls from the front that can be made as one."""
    batch = [queue.popleft()]
    rows = batch[0].rows
    while queue and queue[0].served is batch[0].served and queue[0].shape == batch[0].shape:
        rows += queue[0].rows
        if rows > MOST_ROWS:
            break
        batch.append(queue.popleft())
    return batch


def _make(batch: list[QueuedCall]) -> None:
    """Make the calls and hand the answers back; an error of one is not its neighbours'."""
    now = time.monotonic()
    wanted = [one for one in batch if one.deadline > now and not one.future.cancelled()]
    if not wanted:
        return
    try:
        answers = _together(wanted)
    except Exception as error:  # noqa: BLE001 - it is the caller's to see
        if len(wanted) == 1:
            _hand_back(wanted[0], error)
            return
        for one in wanted:
            _make([one])
        return
    for one, answer in zip(wanted, answers, strict=True):
        _hand_back(one, answer)


def _together(batch: list[QueuedCall]) -> list[Prediction]:
    if len(batch) == 1:
        return [batch[0].served.answer(batch[0].feed)]
    names = batch[0].feed
    prediction = batch[0].served.answer({name: np.concatenate([one.feed[name] for one in batch]) for name in names})
    ends = np.cumsum([one.rows for one in batch])
    outputs = [
        {name: values[end - one.rows : end] for name, values in prediction.outputs.items()}
        for one, end in zip(batch, ends, strict=True)
    ]
    return [Prediction(prediction.project, prediction.version, own, prediction.row_s) for own in outputs]


def _hand_back(waiting: QueuedCall, outcome: Prediction | Exception) -> None:
    def settle() -> None:
        if waiting.future.done():
            return
        if isinstance(outcome, Exception):
            waiting.future.set_exception(outcome)
        else:
            waiting.future.set_result(outcome)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
        waiting.loop.call_soon_threadsafe(settle)


def _late() -> http_errors.RequestError:
    return http_errors.late("the deadline passed before there was an answer")
