"""The server's log: a line of JSON for each thing that is worth one, and few of the requests that went well.

A log line costs about 15 us, a small model's answer 10. So only some ordinary requests a second are logged, each with
the number of skipped ones since. Errors of ours are all logged; rejected requests have a limit of their own, so that a
caller who is rejected again and again cannot fill the disk. Health checks that succeed are not logged.
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
    """Passes only uvicorn's errors and the deaths of workers, which nothing else logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        if record.levelno < logging.ERROR and record.getMessage().endswith(" died"):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            return True
        return record.levelno >= logging.ERROR


def config() -> dict[str, Any]:
    """The configuration of Python's logging, as uvicorn hands it to its workers."""
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
    """Writes down some of the requests."""

    def __init__(self) -> None:
        self._ordinary = _RateCounter(ORDINARY_PER_S)
        self._refused = _RateCounter(REFUSED_PER_S)

    def passed(self, context: RequestContext, seconds: float, what: str) -> None:
        """Write a request down, or pass it over. `what`: method and address, or gRPC's method."""
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
            "request": what[:200],
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
    """Counts events a second."""

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
        """Use a place; how many had none since the last."""
        self._left -= 1
        skipped, self._skipped = self._skipped, 0
        return skipped
