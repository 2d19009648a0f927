"""Garbage collection of old loops: step folders that were not used for long, and delivered lines of the outbox.

Versions (MLflow), data (DVC) and records stay. A step whose folder was removed runs again when it is needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from models.errors import StoreError, UsageError
from tasks.state.outbox import forget_delivered

KEEP = "LOOPLINE_KEEP_WORK_DAYS"
USUAL_DAYS = 14.0
DAY_S = 86400.0


def keep_days() -> float:
    """Return how long unused step folders stay, in days.

    Raises:
        UsageError: The environment variable is not a number of days.
    """
    setting = os.environ.get(KEEP) or str(USUAL_DAYS)
    with contextlib.suppress(ValueError):
        if float(setting) >= 0:
            return float(setting)
    raise UsageError(f"{KEEP}: got {setting!r}, expected a number of days, such as {USUAL_DAYS:g}")


def sweep(state: Path, used: Iterable[Path], days: float, confirm: Callable[[], None], now: float | None = None) -> int:
    """Remove step folders and delivered lines not used for so many days; return the freed bytes of the folders.

    A folder is renamed before its removal, so that a kill leaves no partial
    folder under its name.

    Args:
        state: The project's folder under `.loopline/projects/`.
        used: The step folders of this loop; they count as used now.
        days: The result of `keep_days`.
        confirm: Raises a StoreError unless this process still runs the loop; called before each removal.
        now: Unix time; default: the system clock.
    """
    now = time.time() if now is None else now
    freed, before = 0, now - days * DAY_S
    with contextlib.suppress(OSError, StoreError):  # the next loop tries again
        for folder in used:
            if folder.is_dir():
                os.utime(folder, (now, now))
        for folder in _old(state / "work", before):
            confirm()
            freed += sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
            doomed = folder.rename(folder.with_name(f".{folder.name}.tmp"))
            shutil.rmtree(doomed, ignore_errors=True)
        forget_delivered(state, before)
    return freed


def _old(work: Path, before: float) -> Iterator[Path]:
    """Yield the folders `work/STEP/KEY` that no loop wrote or used since `before`."""
    for folder in work.glob("*/*"):
        if folder.is_dir() and not folder.name.startswith("."):
            times = (path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
            if all(time < before for time in times):
                yield folder
