"""How a forked command ends, and how it pauses for a test that ends it at one of its lines."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

PAUSE_AT = "TESTS_PAUSE_AT"
"""The variable with the begin of a line: a command that prints such a line as an error stops itself there (SIGSTOP)."""


def pause() -> None:
    """Pause at the line that the environment names, if it names one."""
    if PAUSE_AT in os.environ:
        sys.stderr = _Pausing(sys.stderr, os.environ[PAUSE_AT])  # type: ignore[assignment]


class _Pausing:
    """A stream that stops its process after it has written a line that begins so."""

    def __init__(self, stream: Any, begin: str) -> None:
        self._stream, self._begin = stream, begin

    def write(self, content: str) -> int:
        count: int = self._stream.write(content)
        if any(line.startswith(self._begin) for line in content.splitlines()):
            self._stream.flush()
            os.kill(os.getpid(), signal.SIGSTOP)
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def end_with(main: Callable[[], None]) -> None:
    """Call it and end as the interpreter does, but for taking all modules to pieces: that costs half a second."""
    code: Any = 1
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)
