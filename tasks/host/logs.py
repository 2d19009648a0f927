"""JSON logs: one line per record, for log collectors; repeated errors are logged once a minute."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

import orjson


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: `at`, `level`, `logger`, `message`, `extra["fields"]`, `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def to_stderr() -> None:
    """Write all logs of this process to stderr as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


AGAIN_S = 60.0


class Repeated:
    """Logs a frequent error once a minute per place, with the number of omitted ones: it may come many times a second.

    Args:
        log: The logger.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged: dict[str, float] = {}
        self._passed_over: dict[str, int] = {}

    def log(self, level: int, where: str, reason: object, *, exc_info: bool = False) -> None:
        """Log `where: reason`, unless this place was logged in the last minute."""
        now = time.monotonic()
        if now - self._logged.get(where, float("-inf")) < AGAIN_S:
            self._passed_over[where] = self._passed_over.get(where, 0) + 1
            return
        self._logged[where] = now
        count = self._passed_over.pop(where, 0)
        self._log.log(
            level, "%s: %s", where, reason, exc_info=exc_info, extra={"fields": {"passed_over": count} if count else {}}
        )
