"""New data and new labels, sent as an event that may start a loop."""

from __future__ import annotations

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.triggers.policy import ALWAYS
from models.triggers.signal import Signal
from tasks.host import database
from tasks.host.workspace import Project
from tasks.loop import history
from tasks.loop.growth import growth
from tasks.prefect import events


def announce(project: Project) -> list[Signal]:
    """Send events for data and labels that came since the last ingest, and return their signals.

    An arrival's signal has the same id in every call, so its event is sent once.

    Raises:
        UserCodeError: The project's own `arrived` failed.
        StoreError: The event cannot be stored.
    """
    spec = project.spec()
    now, announced = database.current_time(project.workspace.state), []
    grown = growth(project, spec, now)
    if grown is not None:
        evidence = {} if grown.rows is None else {"rows": grown.rows}
        announced.append(_signal(f"data-{grown.key[:16]}", now, grown.text, evidence))
    num_needed = spec.retrain.min_new_labels
    past = history.past(project, spec, now)
    if num_needed and spec.retrain.feedback and past.loops and past.new_labels >= num_needed:
        text = f"{past.new_labels:,} predictions were labelled since the last loop"
        announced.append(_signal(f"labels-{past.loops[-1].loop_id}", now, text, {"labels": past.new_labels}))
    for signal in announced:
        events.send(project.workspace, events.of_signal(spec.name, signal))
    return announced


def refuse_unheard(project: Project, spec: Spec, kind: str) -> None:
    """Refuse a signal that begins no loop, since no automation listens for its kind and the policy would refuse it.

    Raises:
        UsageError: The spec's `retrain.on` does not name the kind, and it is no person's request.
    """
    if kind not in ALWAYS and kind not in spec.retrain.on:
        named = ", ".join(spec.retrain.on) or "nothing"
        raise UsageError(
            f"{project.shown_spec}: retrain.on: names {named}, so nothing listens for {kind}: add {kind} to it and run "
            f"`loopline deploy {spec.name}`, or ask as a person, who is always heard: `loopline trigger {spec.name}`"
        )


def _signal(name: str, moment: float, reason: str, evidence: dict[str, int]) -> Signal:
    return Signal(id=name, kind="new_data", at=moment, reason=reason, evidence=evidence)
