"""Processes that a test starts: killed at the end of the block, also when its body fails.

`with subprocess.Popen(...)` waits for the process at its end, and for ever where the body failed before it ended it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """`subprocess.Popen` with these options; what still runs at the end of the block is killed, its pipes closed."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
