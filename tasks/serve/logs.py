"""The server's log: JSON lines for events and failed requests, and for a few of the successful requests.

A line costs about 15 us, a small model's prediction 10 us. So only a few successful requests a second are logged, each
with the number of requests skipped since the last line. All server errors and slow requests are logged. Refused
requests have their own limit, so that a client that is refused again and again cannot fill the disk. Successful probes
are not logged.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from tasks.serve.request_context import RequestContext

ORDINARY_PER_S = 5
REFUSED_PER_S = 20
SLOW_S = 1.0

_log = logging.getLogger("loopline.serve.requests")


class WorkerLogFilter(logging.Filter):
    """Keeps uvicorn's errors and its message that a worker died, which nothing else logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.levelno < logging.ERROR and record.getMessage().endswith(" died"):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            return True
        return record.levelno >= logging.ERROR


def config() -> dict[str, Any]:
    """Return the configuration of Python's logging, which uvicorn passes to its workers."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "tasks.host.logs.JsonLines"}},
        "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"handlers": ["lines"], "level": "INFO"},
        "filters": {"workers": {"()": "tasks.serve.logs.WorkerLogFilter"}},
        "loggers": {"uvicorn": {"level": "ERROR"}, "uvicorn.error": {"level": "INFO", "filters": ["workers"]}},
    }


class RequestLog:
    """Logs some of the requests."""

    def __init__(self) -> None:
        self._ordinary = _RateCounter(ORDINARY_PER_S)
        self._refused = _RateCounter(REFUSED_PER_S)

    def passed(self, context: RequestContext, seconds: float, call: str) -> None:
        """Log a request or skip it. `call`: method and address, or the gRPC method."""
        status = context.status
        if status >= 500 or seconds >= SLOW_S:
            skipped = 0
        elif status < 400 and not context.model:
            return
        else:
            measure = self._ordinary if status < 400 else self._refused
            if not measure.has_room():
                return
            skipped = measure.taken()
        fields = {
            "request": call[:200],
            "id": context.shown_id,
            "model": context.model,
            "version": context.version,
            "status": status,
            "ms": round(seconds * 1e3, 3),
            "rows": context.rows,
        }
        level = logging.ERROR if status == 500 else logging.WARNING if status >= 400 else logging.INFO
        _log.log(level, "request", extra={"fields": fields | ({"passed_over": skipped} if skipped else {})})


class _RateCounter:
    """Limits the lines a second and counts the skipped ones."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._second, self._left, self._skipped = int(time.monotonic()), per_s, 0

    def has_room(self) -> bool:
        if self._left > 0:
            return True
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, self._per_s
            return True
        self._skipped += 1
        return False

    def taken(self) -> int:
        """Use one line of the limit; return how many requests were skipped since the last line."""
        self._left -= 1
        skipped, self._skipped = self._skipped, 0
        return skipped
