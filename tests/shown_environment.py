"""The environment that others see of a forked process: Linux shows the bytes that its first ancestor was started with.

The platform knows its processes, and what they started, by a variable (`tasks/platform/service_main.py`). A process
that was forked from the tests' warm parent writes its own environment over its parent's.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

ROOM = {"TESTS_ROOM": "." * 100_000}
"""What the warm parent is started with, so that its children have room for theirs."""
_START = 47
"""Where `/proc/PID/stat` says where the environment begins and ends, counted behind the program's name (proc(5))."""


def show(environ: dict[str, str]) -> None:
    """Write these variables where others look for ours.

    Raises:
        ValueError: There is no room for them.
    """
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(stat[_START]), int(stat[_START + 1])
    content = b"".join(b"%s=%s\0" % (os.fsencode(name), os.fsencode(value)) for name, value in environ.items())
    if len(content) > end - start:
        raise ValueError(f"an environment of {len(content)} bytes, and room for {end - start}: see ROOM")
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, content, len(content))
