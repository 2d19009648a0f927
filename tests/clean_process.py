"""A call in a process that was forked from a clean one: the warm parent of the commands (tests/warm.py).

A fork of a test process keeps every lock that another thread holds at that moment, of torch, OpenMP, gloo or a module
that is being imported, and nobody releases it: a tenth of them hung while another thread computed with torch.
No thread computes in the warm parent: it has those of allocators, and an idle one of ONNX Runtime.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from tests import warm

TIMEOUT_S = 60.0


class CleanProcess:
    """A call under way. It sees the test's environment, but no patch of the test's own process.

    Args:
        folder: A new folder of this process's own, for the call, its output and its result.
        work: Called without arguments; may be a closure over what can be pickled, as its result can.
        timeout_s: After this time the process prints the stack of each of its threads and ends.
    """

    def __init__(self, folder: Path, work: Callable[[], Any], timeout_s: float = TIMEOUT_S) -> None:
        folder.mkdir(parents=True)
        self._folder, self._timeout_s = folder, timeout_s
        (folder / "work").write_bytes(cloudpickle.dumps(work))
        command = ["-m", "tests.clean_process", str(folder), str(timeout_s)]
        with (folder / "log").open("wb") as log:
            self._process = warm.start_python(command, dict(os.environ), warm.ROOT, log)

    def result(self) -> Any:
        """What the call returned.

        Raises:
            AssertionError: It raised, or was killed, or hung: with its output, which has the traceback.
        """
        try:
            code = self._process.wait(self._timeout_s + 5)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, f"exit code {code}: {(self._folder / 'log').read_text()}"
        return cloudpickle.loads((self._folder / "result").read_bytes())

    def kill(self) -> None:
        """End the process, if it runs."""
        self._process.kill()
        self._process.wait()


def _main(folder: Path, timeout_s: float) -> None:
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    try:
        result = cloudpickle.loads((folder / "work").read_bytes())()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    (folder / "result").write_bytes(cloudpickle.dumps(result))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), float(sys.argv[2]))
