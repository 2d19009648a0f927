"""A person's requests and approvals: retrain a project, answer a waiting run, or stop a loop."""

from __future__ import annotations

import uuid

from models.errors import StoreError
from models.report.facts import PendingApproval
from models.triggers.signal import Signal
from tasks.dashboard.acting import ActionResult
from tasks.host import database
from tasks.host.workspace import Workspace
from tasks.prefect.events import of_signal, send
from tasks.prefect.flow_runs import ask, cancel_run
from tasks.prefect.prefect_server import PrefectServer
from tasks.state.outbox import Outbox

PERSON = "a person on the overview page"


def request_retraining(workspace: Workspace, project: str, reason: str, mark: str | None = None) -> tuple[Signal, bool]:
    """Store a request to retrain and deliver it to Prefect; return its signal and whether Prefect has it already.

    Args:
        workspace: The workspace.
        project: The name in the project's spec.
        reason: The reason as text.
        mark: An id; several requests with the same id count once; default: a new id.

    Raises:
        StoreError: The request cannot be stored.
    """
    signal = Signal(
        id=f"person-{mark or uuid.uuid4()}", kind="person", at=database.current_time(workspace.state), reason=reason
    )
    return signal, send(workspace, of_signal(project, signal))


def answer(workspace: Workspace, waiting: PendingApproval, approved: bool, comment: str) -> ActionResult:
    """Send the person's answer to the waiting run, as Prefect's own page would."""
    api = PrefectServer(workspace).api()
    if api is None:
        return ActionResult(done=False, text="Prefect's server is not up: `loopline up`, then answer.")
    values = {"approve": approved, "name": PERSON, "comment": comment}
    try:
        result = ask(api, f"flow_runs/{uuid.UUID(waiting.flow_run)}/resume", {"run_input": values})
    except (StoreError, ValueError) as error:
        return ActionResult(done=False, text=f"the answer did not reach the run: {error}")
    if result.get("status") != "ACCEPT":
        reason = (result.get("details") or {}).get("reason") or result.get("status")
        return ActionResult(done=False, text=f"the run does not take an answer: {reason}")
    will = "It begins within a minute." if approved else "Nothing is trained."
    return ActionResult(done=True, text=f"The run has your answer, and the history shows it. {will}")


def stop_loop(workspace: Workspace, project: str, loop_id: str, flow_run: str, reason: str) -> ActionResult:
    """Stop a running loop: Prefect cancels what one of its workers runs, any other reads the request from its outbox.

    Both work for a loop on another machine. A loop looks for requests every two seconds.

    Raises:
        StoreError: The request cannot be stored.
    """
    api = PrefectServer(workspace).api()
    is_cancelled = bool(api and flow_run and cancel_run(api, flow_run))
    box = Outbox(workspace.state / "projects" / project, loop_id)
    box.request_stop(f"{PERSON} ({reason})", is_signal=not is_cancelled)
    return ActionResult(
        done=True, text=f"Loop {loop_id} was asked to stop; it ends within seconds, and its page shows it."
    )
