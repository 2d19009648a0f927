"""The request context: version, rows and id of a request, whatever its protocol."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

_MOST_ID = 128


@dataclass(slots=True)
class RequestContext:
    """The context of an open request.

    `deadline`: when the client stops waiting, by `time.monotonic`; None: the client set no deadline.
    `unlogged`: the request was answered, but its prediction could not be logged.
    `model` and `version` stay empty if no version was picked; `status` is an HTTP status for every protocol.
    """

    began: float = field(default_factory=time.perf_counter)
    id: str = ""
    model: str = ""
    version: str = ""
    rows: int = 0
    unlogged: bool = False
    status: int = 0
    deadline: float | None = None

    def until(self, own_deadline: float | None, usual_s: float) -> float:
        """Return the earlier of the protocol's (`own_deadline`) and the client's deadline, else `usual_s` from now."""
        deadlines = [when for when in (own_deadline, self.deadline) if when is not None]
        return min(deadlines) if deadlines else time.monotonic() + usual_s

    @property
    def shown_id(self) -> str:
        """The id if it fits in a header and in one log line, else an empty string."""
        return self.id if len(self.id) <= _MOST_ID and self.id.isascii() and self.id.isprintable() else ""


_current: ContextVar[RequestContext | None] = ContextVar("context", default=None)


def begin() -> RequestContext:
    """Create the context of a request; it belongs to the calling task."""
    context = RequestContext()
    _current.set(context)
    return context


def current() -> RequestContext:
    """Return the request context of this task, or a new unused one if the task has none."""
    return _current.get() or RequestContext()
