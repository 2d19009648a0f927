"""Dynamic batching and backpressure: a quick call runs in the event loop; a slow one queues for the batch thread.

There is no batching timer: the thread takes all calls that queued for a model while it was busy as one batch, and the
event loop the quick ones, once a turn brings no further one; so a single call never waits for others. Models take
turns. A call in the event loop saves the hand-over to the thread (0.1 ms), but blocks other requests while it runs, so
only quick calls run there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.inference.loaded_model import LoadedModel, Prediction
from models.inference.predict import Feed
from models.kinds.data_kind import PerDataKind
from models.serving import http_errors

INLINE_MS = 0.5
ALONE_CALLS = 16
"""Quick calls that are answered at once after one that nothing joined: it waited two turns of the loop for nothing."""
INLINE_ROWS: PerDataKind[int] = {"table": 64, "image": 64, "series": 64, "text": 0}
MOST_JOINED = 64
"""So many quick calls wait for no further turn of the event loop."""
MOST_ROWS = 256
"""Maximum rows of a batch: with more rows a call of a small model takes longer and saves little per row."""
MOST_WAITING = 256
STUCK_S = 60.0
DEADLINE_S = 30.0
"""Seconds until the deadline of a call whose client sets none."""


@dataclass(eq=False, slots=True)
class QueuedCall:
    """A call that waits for its batch."""

    served: LoadedModel
    feed: Feed
    rows: int
    deadline: float
    future: asyncio.Future[Prediction]


class DynamicBatcher:
    """Runs the model calls of one process.

    Args:
        most_waiting: Maximum number of queued calls; further calls are refused.
    """

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most = most_waiting
        self._queues: dict[str, deque[QueuedCall]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._busy_since: float | None = None
        self._quick: dict[LoadedModel, deque[QueuedCall]] = {}
        self._num_alone = 0
        self.waiting = 0

    async def answer(self, served: LoadedModel, feed: Feed, deadline: float) -> Prediction:
        """Predict with a version.

        Args:
            served: The version.
            feed: The inputs of its graph.
            deadline: When the client stops waiting, by `time.monotonic`.

        Raises:
            RequestError: The queue is full, or the deadline passed.
        """
        rows = len(next(iter(feed.values())))
        is_quick = self._is_quick(served, rows)
        if is_quick and self._num_alone:
            self._num_alone -= 1
            if time.monotonic() > deadline:
                raise _late()
            return served.answer(feed)
        loop = asyncio.get_running_loop()
        waiting = QueuedCall(served, feed, rows, deadline, loop.create_future())
        if is_quick:
            if not self._quick:
                loop.call_soon(self._answer_quick, 0)
            self._quick.setdefault(served, deque()).append(waiting)
            return await waiting.future
        self._enter(waiting)
        try:
            async with asyncio.timeout_at(loop.time() + deadline - time.monotonic()):
                return await waiting.future
        except TimeoutError:
            raise _late() from None

    def _is_quick(self, served: LoadedModel, rows: int) -> bool:
        """Return whether a call may run in the event loop."""
        return rows <= INLINE_ROWS[served.preparation.kind] and served.call_ms < INLINE_MS

    @property
    def is_stuck(self) -> bool:
        """Whether one call has run for more than STUCK_S seconds, so that it will hardly end."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > STUCK_S

    def close(self) -> None:
        """Answer the queued calls, then end the thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(STUCK_S)

    def _answer_quick(self, num_before: int) -> None:
        """Answer the quick calls, those of a model together, once a turn of the event loop brought no further one."""
        num_calls = sum(map(len, self._quick.values()))
        if num_before < num_calls < MOST_JOINED:
            asyncio.get_running_loop().call_soon(self._answer_quick, num_calls)
            return
        queues, self._quick = self._quick, {}
        self._num_alone = ALONE_CALLS if num_calls == 1 else 0
        for served, queue in queues.items():
            while queue:
                for call, outcome in _outcomes(_batch(queue, INLINE_ROWS[served.preparation.kind])):
                    _settle(call, outcome)

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
            for call, outcome in _outcomes(batch):
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the result
                    call.future.get_loop().call_soon_threadsafe(_settle, call, outcome)
            self._busy_since = None

    def _next(self) -> list[QueuedCall] | None:
        """Return the next batch; None if the batcher is closed and no call is queued."""
        with self._changed:
            while not self.waiting:
                if self._is_over:
                    return None
                self._changed.wait()
            project = next(iter(self._queues))
            queue = self._queues.pop(project)
            batch = _batch(queue, MOST_ROWS)
            self.waiting -= len(batch)
            if queue:
                self._queues[project] = queue  # behind the others: models take turns
            return batch


def _batch(queue: deque[QueuedCall], most_rows: int) -> list[QueuedCall]:
    """Take the calls from the front of the queue that can run as one batch."""
    batch = [queue.popleft()]
    rows = batch[0].rows
    while queue and queue[0].served is batch[0].served:
        rows += queue[0].rows
        if rows > most_rows:
            break
        batch.append(queue.popleft())
    return batch


def _outcomes(batch: list[QueuedCall]) -> Iterator[tuple[QueuedCall, Prediction | Exception]]:
    """Run a batch; an error of one call does not fail the others."""
    now = time.monotonic()
    yield from ((call, _late()) for call in batch if call.deadline <= now)
    open_calls = [call for call in batch if call.deadline > now and not call.future.done()]
    if not open_calls:
        return
    try:
        answers = _together(open_calls)
    except Exception as error:  # noqa: BLE001 - the caller gets it
        if len(open_calls) == 1:
            yield open_calls[0], error
            return
        for call in open_calls:
            yield from _outcomes([call])
        return
    yield from zip(open_calls, answers, strict=True)


def _together(batch: list[QueuedCall]) -> list[Prediction]:
    if len(batch) == 1:
        return [batch[0].served.answer(batch[0].feed)]
    names = batch[0].feed
    prediction = batch[0].served.answer({name: np.concatenate([call.feed[name] for call in batch]) for name in names})
    ends = np.cumsum([call.rows for call in batch])
    outputs = [
        {name: values[end - call.rows : end] for name, values in prediction.outputs.items()}
        for call, end in zip(batch, ends, strict=True)
    ]
    return [
        Prediction(prediction.project, prediction.version, call_outputs, prediction.row_s) for call_outputs in outputs
    ]


def _settle(call: QueuedCall, outcome: Prediction | Exception) -> None:
    if call.future.done():
        return
    if isinstance(outcome, Exception):
        call.future.set_exception(outcome)
    else:
        call.future.set_result(outcome)


def _late() -> http_errors.RequestError:
    return http_errors.late("the deadline passed before there was an answer")
