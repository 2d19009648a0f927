"""Carries what ended loops left in the outbox to MLflow, by a short process; a running loop carries its own lines.

`python -m tasks.loop.carry_runs ROOT PROJECT ...` exits with 1 if lines still wait.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from models.errors import StoreError
from tasks.host.workspace import Workspace
from tasks.loop.short_process import ShortProcess, carry
from tasks.mlflow import registry_reader
from tasks.mlflow.delivery import MlflowExporter
from tasks.state.outbox import waiting_loops

ASK_S = 10.0
"""How often the database is asked for ended loops whose lines wait."""


@dataclass
class RunCarrier:
    """Starts a process where lines of an ended loop still wait at the second question: a loop delivers at its end.

    Args:
        workspace: The workspace.
    """

    workspace: Workspace
    process: ShortProcess = field(init=False)
    _asked_at: float = float("-inf")
    _waiting: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.process = ShortProcess(self.workspace, __name__)

    def once(self) -> None:
        """Ask whether lines wait, and start the process that delivers them.

        Raises:
            StoreError: The database cannot be used.
        """
        now = time.monotonic()
        if now - self._asked_at < ASK_S or not self.process.is_free:
            return
        waiting = waiting_loops(self.workspace.state)
        before, self._waiting, self._asked_at = self._waiting, frozenset(waiting), now
        if projects := {waiting[loop_id].project for loop_id in before & self._waiting}:
            self.process.start(projects)


@registry_reader.reading()  # a tracking store that is away is asked for one loop alone
def _deliver(workspace: Workspace, projects: list[str]) -> list[str]:
    """Deliver the lines of the projects' ended loops; return why some still wait."""
    troubles = []
    for loop_id, line in waiting_loops(workspace.state).items():
        if line.project not in projects:
            continue
        try:
            MlflowExporter(workspace, line.project, loop_id).deliver()
        except StoreError as error:
            troubles.append(f"{loop_id}: {error}")
    return troubles


if __name__ == "__main__":
    carry(_deliver)
