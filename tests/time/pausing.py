"""Pause a process of a test at a point: it says so, and goes on when a line comes to its standard input."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.time.points import WRITTEN, Point

PAUSED = "paused at "
"""How the line of a process begins that pauses; the test then stops it (SIGSTOP), with all its threads."""


def pause(name: str) -> None:
    """Say where this process is, and wait for a line."""
    print(f"{PAUSED}{name}", flush=True)
    sys.stdin.readline()


def pause_at(point: Point, times: int = 1) -> None:
    """Have this process pause at the point, the first time that it comes there; `times`: the second, and so on."""
    module, _, path = point.target.partition(":")
    *owners, last = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(module))
    real: Callable[..., Any] = getattr(owner, last)
    left = times

    def stop(moment: str) -> None:
        nonlocal left
        if moment == point.moment and _is_within(point):
            left -= 1
            if left == 0:
                pause(point.name)

    @functools.wraps(real)
    def pausing(*args: Any, **named: Any) -> Any:
        stop("before")
        result = real(*args, **named)
        stop("after")
        return result

    setattr(owner, last, pausing)


def _is_within(point: Point) -> bool:
    """Whether the point's function is among the callers."""
    frame: FrameType | None = sys._getframe(3)  # of the target's caller
    while frame is not None:
        code = frame.f_code
        if code.co_qualname == point.function and code.co_filename.endswith(point.file):
            return True
        frame = None if point.target == WRITTEN else frame.f_back
    return False
