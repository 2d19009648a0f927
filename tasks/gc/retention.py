"""How long things stay after their last use."""

from __future__ import annotations

import contextlib
import os

from models.errors import UsageError

KEEP = "LOOPLINE_KEEP_WORK_DAYS"
"""For files that a loop makes again when it needs them: step folders, pages, cached models."""
USUAL_DAYS = 14.0
KEEP_HISTORY = "LOOPLINE_KEEP_HISTORY_DAYS"
"""For what people look at: records, runs, versions that nobody serves, their data."""
USUAL_HISTORY_DAYS = 90.0
DAY_S = 86400.0


def keep_days() -> float:
    """Return how long files of unused work stay, in days.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    return _days(KEEP, USUAL_DAYS)


def history_days() -> float:
    """Return how long the history stays that nothing needs, in days.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    return _days(KEEP_HISTORY, USUAL_HISTORY_DAYS)


def _days(variable: str, usual: float) -> float:
    setting = os.environ.get(variable) or str(usual)
    with contextlib.suppress(ValueError):
        if float(setting) >= 0:
            return float(setting)
    raise UsageError(f"{variable}: got {setting!r}, expected a number of days, such as {usual:g}")
