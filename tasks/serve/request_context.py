"""The request context: version, rows and id of a request, whatever its protocol."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

_MOST_ID = 128


@dataclass(slots=True)
class RequestContext:
    """A request under way.

    `deadline`: when the caller stops waiting, by `time.monotonic`; None: no deadline. `unlogged`: the request was
    answered, and the log could not be written. `model` and `version` are empty before one is chosen; `status` is that
    of HTTP, for any protocol.
    """

    began: float = field(default_factory=time.perf_counter)
    id: str = ""
    model: str = ""
    version: str = ""
    rows: int = 0
    unlogged: bool = False
    status: int = 0
    deadline: float | None = None

    def until(self, own: float | None, usual_s: float) -> float:
        """When it is of no use any more: by its protocol, by the caller's header, else as usual."""
        deadlines = [when for when in (own, self.deadline) if when is not None]
        return min(deadlines) if deadlines else time.monotonic() + usual_s

    @property
    def shown_id(self) -> str:
        """The id if it can stand in a header and in one line of a log, else an empty text."""
        return self.id if len(self.id) <= _MOST_ID and self.id.isascii() and self.id.isprintable() else ""


_current: ContextVar[RequestContext | None] = ContextVar("context", default=None)


def begin() -> RequestContext:
    """Begin to note a request; it belongs to the task that called this."""
    context = RequestContext()
    _current.set(context)
    return context


def current() -> RequestContext:
    """The context of this task's request; outside of a request, one that nobody reads."""
    return _current.get() or RequestContext()
