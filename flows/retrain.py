"""The `retrain` flow: the policy decides on a signal to run a loop, to ask a person, or to wait."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect import State, flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.flow_runs import suspend_flow_run
from prefect.input.run_input import RunInput
from prefect.runtime import flow_run
from prefect.states import Completed, Scheduled

from models.errors import DataError, GateRefused
from models.triggers.signal import Decision, Kind, Signal, clock
from tasks.host import stores
from tasks.host.workspace import Project, Workspace
from tasks.loop.champion import champion_stays
from tasks.operations import retrain as retraining


class Approval(RunInput):  # type: ignore[misc]  # seen as Any: Prefect loads it lazily
    """The form for an approval on Prefect's page."""

    approve: bool = True
    name: str = ""
    comment: str = ""


def _run_name() -> str:
    parameters = flow_run.parameters
    kind = (parameters.get("signal") or {}).get("kind") or _kind(parameters.get("trigger") or "person")
    return f"{Workspace.find().project(parameters['project']).folder.name}-{kind}-{str(flow_run.id)[:8]}"


@flow(name="retrain", flow_run_name=_run_name, persist_result=False)
def retrain(
    project: str, signal: dict[str, Any] | None = None, trigger: Kind = "person", reason: str = ""
) -> dict[str, Any] | State[Any]:
    """Decide on a signal by the policy, and run a loop if the policy, or the person it asks, approves.

    Args:
        project: A name under projects/, or the path of a folder with a project.yaml.
        signal: The signal from its event; default: a new one from `trigger` and `reason`.
        trigger: The kind of the new signal.
        reason: The reason as text.
    """
    this_project = stores.open_project(project)
    decision = weigh(this_project, _signal(signal, trigger, reason))
    if decision.action == "ask":
        approval = suspend_flow_run(
            wait_for_input=Approval.with_initial_data(description=_question(decision)),
            timeout=math.ceil(this_project.spec().retrain.ask_timeout_s),
            key="approval",
        )
        decision = retraining.answered(this_project, decision, approval.approve, approval.name, approval.comment)
    _publish(decision, this_project)
    if decision.action == "wait":
        _weigh_again(decision)
        return Completed(name="Waited", message="; ".join(decision.reasons))
    return _carried_round(this_project, decision)


@task(name="weigh", task_run_name="weigh", cache_policy=NO_CACHE, persist_result=False)
def weigh(project: Project, signal: Signal) -> Decision:
    """Return the decision on a signal; first close an open question whose run is gone, because it would block."""
    _close_lost_question(project)
    decision = retraining.weigh(project, signal, str(flow_run.id))
    get_run_logger().info("%s: %s", decision.action, "; ".join(decision.reasons))
    return decision


def _signal(message: dict[str, Any] | None, trigger: Kind, reason: str) -> Signal:
    if message is not None:
        return Signal.model_validate(message)
    planned = flow_run.scheduled_start_time
    moment = planned.timestamp() if planned is not None else time.time()
    return retraining.run_signal(_kind(trigger), moment, str(flow_run.id), reason)


def _kind(trigger: Kind) -> Kind:
    """Return the kind of a run without a signal: `schedule` if Prefect's scheduler began it, else `trigger`."""
    context = FlowRunContext.get()
    by_schedule = context is not None and context.flow_run is not None and context.flow_run.auto_scheduled
    return "schedule" if by_schedule else trigger


def _carried_round(project: Project, decision: Decision) -> dict[str, Any] | State[Any]:
    """Run the loop with the policy's overrides of the spec; rejected data ends the run in the state Rejected."""
    from flows.train import opened, round_trip  # heavy (numpy, pyarrow): a run that only waits must not import them
    from tasks.operations.reap import reap

    overrides, refresh = retraining.loop_overrides(project)
    for line in reap(project.workspace, project.spec().name):
        get_run_logger().info(line)
    _name_run(str(decision.loop_id))
    try:
        with opened(project, overrides, decision.signal.kind, refresh, decision.loop_id) as loop:
            return round_trip(loop)
    except (GateRefused, DataError) as error:
        words = champion_stays(project.workspace, project.spec().name)
        return Completed(name="Rejected", message=f"{words}: {error}" if words else str(error))


def _name_run(name: str) -> None:

    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, name=name)


def _publish(decision: Decision, project: Project) -> None:
    """Publish the decision as an artifact on the run's page; its key collects all decisions of the project."""
    from prefect.artifacts import create_markdown_artifact

    key = f"{project.folder.name.replace('_', '-')}-decision"
    create_markdown_artifact(
        _decision_text(decision), key=key, description=f"{decision.signal.kind}: {decision.action}"
    )


def _decision_text(decision: Decision) -> str:
    reasons = "\n".join(f"- {reason}" for reason in decision.reasons)
    again = f"\n\nWeighed again {clock(decision.until)}." if decision.until else ""
    numbers = "\n".join(f"| {name} | {value} |" for name, value in decision.signal.evidence.items())
    evidence = f"\n\n| evidence | |\n|---|---|\n{numbers}" if numbers else ""
    signal = f"Signal `{decision.signal.kind}` ({decision.signal.id}): {decision.signal.reason}"
    return f"# {decision.action}\n\n{signal}\n\n{reasons}{again}{evidence}"


def _question(decision: Decision) -> str:
    return f"**Retrain?** {_decision_text(decision)}"


def _weigh_again(decision: Decision) -> None:
    """Schedule a new run for this signal at the end of its wait; signals of the same minute share a run."""
    context = FlowRunContext.get()
    deployment = context.flow_run.deployment_id if context and context.flow_run else None
    if decision.until is None or deployment is None or decision.signal.kind == "person":
        return
    moment = datetime.fromtimestamp(decision.until, UTC) + timedelta(seconds=1)
    with get_client(sync_client=True) as client:
        client.create_flow_run_from_deployment(
            deployment,
            parameters={**flow_run.parameters, "signal": decision.signal.model_dump(mode="json")},
            state=Scheduled(scheduled_time=moment, message="; ".join(decision.reasons)),
            name=f"{decision.signal.kind}-weighed-again",
            # Keys belong to the flow, which all projects share.
            idempotency_key=f"again-{deployment}-{moment:%Y%m%d%H%M}",
        )


def _close_lost_question(project: Project) -> None:
    """Close the open question if its run was cancelled, timed out or deleted, because nobody can answer it."""
    question = retraining.open_question(project)
    if question is None or question.flow_run is None or question.flow_run == str(flow_run.id):
        return
    with get_client(sync_client=True) as client:
        try:
            state = client.read_flow_run(question.flow_run).state
        except ObjectNotFound:
            retraining.unanswered(project, question, "its run was deleted")
            return
    if state is not None and state.is_final():
        retraining.unanswered(project, question, f"its run ended as {state.name}")
