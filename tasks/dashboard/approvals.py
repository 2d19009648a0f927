"""Approvals and requests of a person: retrain a project, or answer a run that waits."""

from __future__ import annotations

import time
import uuid

from models.errors import StoreError
from models.report.facts import PendingApproval
from models.triggers.signal import Signal
from tasks.dashboard.acting import ActionResult
from tasks.host.workspace import Workspace
from tasks.prefect.events import of_signal, send
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer


def request_retraining(workspace: Workspace, project: str, reason: str, mark: str | None = None) -> tuple[Signal, bool]:
    """Keep the wish that a project is retrained, and hand it to Prefect; whether Prefect has it by now.

    Args:
        workspace: Where.
        project: The name in its spec.
        reason: In words.
        mark: Requests with the same mark count once. Default: a new mark.

    Raises:
        StoreError: The wish cannot be written down.
    """
    signal = Signal(id=f"person-{mark or uuid.uuid4()}", kind="person", at=time.time(), reason=reason)
    return signal, send(workspace, of_signal(project, signal))


def answer(workspace: Workspace, waiting: PendingApproval, approved: bool, comment: str) -> ActionResult:
    """Resume the waiting run with the person's answer, as Prefect's own page would."""
    api = PrefectServer(workspace).api()
    if api is None:
        return ActionResult(done=False, text="Prefect's server is not up: `loopline up`, then answer.")
    values = {"approve": approved, "name": "a person on the overview page", "comment": comment}
    try:
        result = ask(api, f"flow_runs/{uuid.UUID(waiting.flow_run)}/resume", {"run_input": values})
    except (StoreError, ValueError) as error:
        return ActionResult(done=False, text=f"the answer did not reach the run: {error}")
    if result.get("status") != "ACCEPT":
        why = (result.get("details") or {}).get("reason") or result.get("status")
        return ActionResult(done=False, text=f"the run does not take an answer: {why}")
    return ActionResult(
        done=True, text="It is retrained now." if approved else "It is not retrained; that stands in the history."
    )
