"""Automatic retraining: decides on each signal once, records and sends the decision, and makes the loop's overrides."""

from __future__ import annotations

import json
from typing import Any

from models.project_spec.blocks import Spec
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.triggers.overrides import overrides
from models.triggers.policy import decide
from models.triggers.signal import Action, Decision, Kind, Signal
from tasks.host import database
from tasks.host.workspace import Project, Workspace
from tasks.loop import decisions, history
from tasks.mlflow import registry_reader
from tasks.prefect.events import DECISION_MADE, Event, send


def run_signal(kind: Kind, moment: float, flow_run: str, reason: str = "") -> Signal:
    """Return a signal for a run that began without one: by a schedule, or by a person on Prefect's page."""
    words = {"person": "a person asked", "schedule": "the schedule says so"}
    return Signal(id=f"{kind}-{flow_run}", kind=kind, at=moment, reason=reason or words.get(kind, kind))


def weigh(project: Project, signal: Signal, flow_run: str) -> Decision:
    """Apply the policy to a signal and record the decision; a repeated flow run gets its earlier decision.

    A signal that was sent again after another run decided it gets the decision to wait. This decision is not recorded:
    the earlier one stays valid.

    Raises:
        UsageError: The spec is wrong.
        StoreError: The decision cannot be stored.
    """
    spec = project.spec()
    state = project.state(spec.name)
    before = decisions.of_flow_run(state, flow_run)
    if before is not None:
        return before
    now = database.current_time(project.workspace.state)
    past = history.past(project, spec, now)
    if spec.retrain.min_new_labels:
        past = past.model_copy(update={"new_labels": past.new_labels + _new_rows(project, spec, now)})
    decision = decide(spec.retrain, signal, past, now).model_copy(update={"flow_run": flow_run})
    if signal.id in past.signals:  # perhaps by this run, which goes on on two machines
        return decisions.of_flow_run(state, flow_run) or decision
    return _recorded(project, spec.name, decision, None)


def answered(project: Project, question: Decision, approved: bool, person: str, comment: str = "") -> Decision:
    """Record a person's answer to an open question; an approval starts a loop unless another loop runs."""
    spec = project.spec()
    state = project.state(spec.name)
    before = decisions.of_flow_run(state, str(question.flow_run))
    if before is not None and before.action != "ask":
        return before
    reason = _answer(approved, person, comment)
    running = history.running(state)
    action: Action = "retrain" if approved and running is None else "wait"
    reasons = [
        reason,
        *([f"loop {running} runs now: one at a time"] if approved and running else []),
        *(question.reasons[1:] if question.by else question.reasons),  # `note_answer` has put the answer before them
    ]
    at = database.current_time(project.workspace.state)
    answer = question.model_copy(update={"at": at, "action": action, "reasons": reasons, "by": person or None})
    return _recorded(project, spec.name, answer, before)


def note_answer(
    workspace: Workspace, project: str, flow_run: str, approved: bool, person: str, comment: str = ""
) -> None:
    """Record that a person has answered the question of a run, which takes the answer up a few seconds later.

    The run records the decision itself; until then the question is answered, and nobody is asked again.
    """
    state = workspace.state / "projects" / project
    question = decisions.of_flow_run(state, flow_run)
    if question is not None and question.action == "ask":
        reasons = [f"{_answer(approved, person, comment)}; the run takes it up", *question.reasons]
        at = database.current_time(workspace.state)
        decisions.record(state, question.model_copy(update={"at": at, "by": person, "reasons": reasons}))


def _answer(approved: bool, person: str, comment: str) -> str:
    return f"{'approved' if approved else 'refused'} by {person or 'a person'}" + (f": {comment}" if comment else "")


def unanswered(project: Project, question: Decision, cause: str) -> Decision:
    """Close a question that nobody will answer any more, so that it no longer blocks other signals."""
    reasons = [f"nobody answered: {cause}", *question.reasons]
    at = database.current_time(project.workspace.state)
    closed = question.model_copy(update={"at": at, "action": "wait", "reasons": reasons, "until": None})
    name = project.spec().name
    return _recorded(project, name, closed, decisions.of_flow_run(project.state(name), str(question.flow_run)))


def open_question(project: Project) -> Decision | None:
    """Return the project's question that waits for a person's answer, or None."""
    spec = project.spec()
    open_approval = history.past(project, spec).open_approval
    questions = [
        decision for decision in decisions.read(project.state(spec.name)) if decision.signal.id == open_approval
    ]
    return questions[-1] if open_approval and questions else None


def loop_overrides(project: Project) -> tuple[list[str], list[str]]:
    """Return the policy's overrides of the spec for an automatic loop, and the steps that must run again.

    A source function is called again; a local file is compared by content, a row by its identity, and a package is
    pinned.

    Raises:
        StoreError: The registry is not reachable.
    """
    spec = project.spec()
    settings = None
    if spec.retrain.search == "reuse":
        champion = registry_reader.named(project.workspace.state, spec.name)
        parameters = champion.tags.get("loopline.params") if champion else None
        settings = json.loads(parameters) if parameters else None
    is_read_again = scheme_of(spec.data.source).is_read_again(Source(spec.data.source, project.folder))
    return overrides(spec, settings), ["ingest"] if is_read_again else []


def _new_rows(project: Project, spec: Spec, now: float) -> int:
    """Return the number of new rows at the source: they are labelled rows too."""
    from tasks.loop.growth import growth

    grown = growth(project, spec, now)
    return max(0, grown.rows or 0) if grown is not None else 0


def _recorded(project: Project, name: str, decision: Decision, before: Decision | None) -> Decision:
    """Record and send a decision; a loop gets its id here, so that a repeated run continues the same loop."""
    if decision.action == "retrain":
        from tasks.loop.lifecycle import name_loop

        decision = decision.model_copy(update={"loop_id": name_loop(project, loop_overrides(project)[0])})
    recorded = decisions.record_next(project.state(name), decision, before)
    if recorded is not decision:
        return recorded
    text = f"{decision.action}: {'; '.join(decision.reasons)}"
    payload: dict[str, Any] = {"decision": decision.model_dump(mode="json")}
    labels = {"loopline.action": decision.action, "loopline.trigger": decision.signal.kind}
    send(project.workspace, Event(name=DECISION_MADE, project=name, text=text, payload=payload, labels=labels))
    return decision
