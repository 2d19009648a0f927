"""Functions that a test calls in a child of the fork server, and whose first call is cut short."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def pause_once(marker: str) -> int:
    """Wait until killed the first time; then give the parent's process id."""
    if not Path(marker).exists():
        Path(marker).touch()
        signal.pause()
    return os.getppid()


def killed_once(marker: str) -> int:
    """Die by SIGKILL the first time; then give the parent's process id."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getppid()
