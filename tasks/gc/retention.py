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
KEEP_LOOPS = "LOOPLINE_KEEP_LOOPS"
"""For a project that is seldom trained: its last loops stay however old they are, with what they made."""
USUAL_LOOPS = 30.0
_MOST_LOOPS = 1e9
KEEP_CHAMPIONS = "LOOPLINE_KEEP_CHAMPION_DAYS"
"""For former champions, which stay for ever unless it is set."""
DVC_REMOTE = "LOOPLINE_DVC_REMOTE"
DAY_S = 86400.0


def keep_days() -> float:
    """Return how long files of unused work stay, in days.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    return _number(KEEP, USUAL_DAYS, "days")


def history_days() -> float:
    """Return how long the history stays that nothing needs, in days.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    return _number(KEEP_HISTORY, USUAL_HISTORY_DAYS, "days")


def kept_loops() -> int:
    """Return how many loops of a project stay however old they are.

    Raises:
        UsageError: The environment variable is not a number of loops.
    """
    return int(min(_number(KEEP_LOOPS, USUAL_LOOPS, "loops"), _MOST_LOOPS))


def champion_days() -> float:
    """Return how long a version stays after it was champion last, in days: infinite unless it is set.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    return _number(KEEP_CHAMPIONS, float("inf"), "days")


def owns_remote() -> bool:
    """Return whether no other workspace or clone uses DVC's remote, so that data may be removed from it.

    Raises:
        UsageError: The environment variable is neither `own` nor empty.
    """
    setting = os.environ.get(DVC_REMOTE, "")
    if setting not in ("", "own"):
        raise UsageError(f"{DVC_REMOTE}: got {setting!r}, expected own, or nothing where others use the remote too")
    return setting == "own"


def _number(variable: str, usual: float, unit: str) -> float:
    setting = os.environ.get(variable) or str(usual)
    with contextlib.suppress(ValueError):
        if float(setting) >= 0:
            return float(setting)
    raise UsageError(f"{variable}: got {setting!r}, expected a number of {unit}, such as {min(usual, 365.0):g}")
