"""Metric files that the workers of one server share. Does not import prometheus_client: see below."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

SHARED = "PROMETHEUS_MULTIPROC_DIR"


def share_between_workers(folder: Path) -> None:
    """Empty a folder and make all workers that start from now on keep their metrics in it.

    prometheus_client reads the variable once, when it is imported: call this before anything imports it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[SHARED] = str(folder)


def forget_dead_workers() -> None:
    """Delete the gauges of dead workers; their counters stay."""
    if SHARED not in os.environ:
        return
    for path in Path(os.environ[SHARED]).glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
