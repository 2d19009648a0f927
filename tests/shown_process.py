"""What others see of a forked process: Linux shows the bytes that its first ancestor was started with.

The platform knows its processes, and what they started, by a variable (`tasks/platform/service_main.py`). A process
that was forked from the tests' warm parent writes its own command line and environment over its parent's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

ROOM = "." * 4000, {"TESTS_ROOM": "." * 100_000}
"""An argument and a variable that the warm parent is started with, so that its children have room for theirs."""
_COMMAND, _ENVIRONMENT = 45, 47
"""Where `/proc/PID/stat` says where each begins, counted behind the program's name (proc(5)); the end comes next."""
_IS_A_TITLE = b"\1"
"""A last byte that is not null says that the command line is the text up to the first null."""


def show(command: Sequence[str], environ: dict[str, str]) -> None:
    """Write this command line and these variables where others look for ours.

    Raises:
        ValueError: There is no room for the variables.
    """
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(stat[_COMMAND]), int(stat[_COMMAND + 1])
    title = os.fsencode(" ".join(command))[: end - start - 2]
    _write(start, end, title.ljust(end - start - 1, b"\0") + _IS_A_TITLE)
    start, end = int(stat[_ENVIRONMENT]), int(stat[_ENVIRONMENT + 1])
    variables = b"".join(b"%s=%s\0" % (os.fsencode(name), os.fsencode(value)) for name, value in environ.items())
    _write(start, end, variables.ljust(end - start, b"\0"))


def _write(start: int, end: int, content: bytes) -> None:
    if len(content) > end - start:
        raise ValueError(f"{len(content)} bytes to show, and room for {end - start}: see ROOM")
    ctypes.memmove(start, content, len(content))
