"""A short process that carries waiting rows to a tool: the tool's client stays in no other process's memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from models.errors import LooplineError
from models.launch import launched
from models.parent_death import ends_with_parent
from tasks.host import stores
from tasks.host.workspace import Workspace

LEAST_PAUSE_S, MOST_PAUSE_S = 5.0, 300.0
"""Pause before another process is started where the last one failed; it doubles."""


@dataclass
class ShortProcess:
    """Starts `python -m MODULE ROOT PROJECT ...`; never two at once.

    Args:
        workspace: The workspace.
        module: It exits with 0 if nothing waits any longer.
    """

    workspace: Workspace
    module: str
    _process: subprocess.Popen[bytes] | None = None
    _not_before: float = float("-inf")
    _pause_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a process that it started still runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_free(self) -> bool:
        """Whether a process may be started: none runs, and the pause after a failed one is over."""
        if self.is_running:
            return False
        now = time.monotonic()
        if self._process:
            failed = self._process.returncode != 0
            self._pause_s = min(max(2 * self._pause_s, LEAST_PAUSE_S), MOST_PAUSE_S) if failed else 0.0
            self._process, self._not_before = None, now + self._pause_s
        return now >= self._not_before

    def start(self, projects: Collection[str]) -> None:
        """Start the process for these projects."""
        command = ends_with_parent(launched(self.module, str(self.workspace.root), *sorted(projects)))
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[2])


def carry(deliver: Callable[[Workspace, list[str]], list[str]]) -> None:
    """Run in a short process: carry what waits of the named projects, print why some still waits, and exit with 1 then.

    Args:
        deliver: Carries the rows of some projects to the tool; returns why some still wait.
    """
    root, *projects = sys.argv[1:]
    workspace = Workspace(Path(root))
    try:
        stores.configure(workspace)
        troubles = deliver(workspace, projects)
    except LooplineError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_code) from error
    sys.stderr.writelines(f"{trouble}\n" for trouble in troubles)
    raise SystemExit(1 if troubles else 0)
