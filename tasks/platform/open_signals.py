"""Undecided signals: they are sent again until a decision on them is recorded.

A signal is acknowledged by its decision, not by Prefect's acceptance of its event: a server that is killed or busy
while the run starts loses the event, or ends the run as Crashed before it began.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from models.errors import StoreError, UsageError
from models.triggers.signal import Decision, Signal
from tasks.host import database
from tasks.host.leases import leased
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.prefect.events import STORM_S, TIMEOUT_S, Event, automations_of, change, open_signals, posted
from tasks.prefect.flow_runs import all_runs, ask, begin_again, is_due_again, online_workers, take_up
from tasks.prefect.pods import runs_in_pods
from tasks.prefect.prefect_server import PrefectServer
from tasks.prefect.worker import pool_of
from tasks.ranks.places import find_pool_place

FIRST_WAIT_S = 120.0
OPEN_STATES = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING"]
_AGAIN = uuid.UUID("6c6f6f70-6c69-6e65-8000-61736b616765")


def undecided(workspace: Workspace, project: str) -> list[Signal]:
    """Return the sent signals of a project without a decision, oldest first."""
    return undecided_of_all(workspace).get(project, [])


def undecided_of_all(workspace: Workspace) -> dict[str, list[Signal]]:
    """Return by project the sent signals without a decision, oldest first."""
    signals: dict[str, list[Signal]] = {}
    for event, _ in open_signals(workspace):
        signals.setdefault(event.project, []).append(_signal_of(event))
    decided = decisions.concerning(workspace.state, signals)
    return {
        project: [
            signal for signal in sorted(sent, key=lambda signal: signal.at) if not _is_decided(signal, decided[project])
        ]
        for project, sent in signals.items()
    }


def ask_again(workspace: Workspace, now: float | None = None) -> list[str]:
    """Close decided signals, send again those that Prefect lost; return a line of text for each action.

    A signal is sent again if no running flow run of Prefect names it: two minutes after it was delivered, then at
    growing intervals, at least once an hour. A signal is closed if a person cancelled its run, or if no automation
    matches it: the policy does not name its kind, or a person switched the automation off.

    Raises:
        StoreError: The server's response is an error.
    """
    now = database.current_time(workspace.state) if now is None else now
    api = PrefectServer(workspace).api()
    lines: list[str] = begin_again(api, pool_of(workspace), now) if api else []
    lines += _of_lost_machines(workspace, api) if api and database.is_shared() else []
    late, decided = [], []
    with database.reading(workspace.state):  # both of one moment: a signal that is sent meanwhile is not decided
        sent_signals, waiting = open_signals(workspace), undecided_of_all(workspace)
    for event, sent in sent_signals:
        if _signal_of(event) not in waiting[event.project]:
            decided.append(event)
        elif sent is not None and is_due_again(event.at, sent, now, FIRST_WAIT_S):
            late.append(event)
    if decided:
        change(workspace, decided, is_open=False)
    if not late or api is None:
        return lines
    runs = all_runs(api, _of_signals(min(event.at for event in late)))
    for event in late:
        heard_by = _heard_by(api, event)
        states = {run["state_type"] for run in runs if run["deployment_id"] in heard_by and _names(run, event)}
        if not heard_by or states == {"CANCELLED"}:
            change(workspace, [event], is_open=False)
            lines.append(
                f"{event.project}: {event.text}: closed, because its run was cancelled or no automation matches it"
            )
        elif not states:
            again = {**posted(event), "id": str(uuid.uuid5(_AGAIN, f"{event.id} {now}"))}
            ask(api, "events", [again], timeout_s=TIMEOUT_S)
            change(workspace, [event], sent=now)
            lines.append(f"{event.project}: {event.text}: sent again, because no decision was recorded")
    return lines


def _signal_of(event: Event) -> Signal:
    """Return an event's signal; of one whose form is not known, what identifies it: its event is delivered as it is."""
    signal = event.payload["signal"]
    try:
        return Signal.model_validate(signal)
    except ValidationError:
        return Signal(id=signal["id"], kind="unknown", at=event.at, reason=event.text)


def _of_lost_machines(workspace: Workspace, api: str) -> list[str]:
    """Schedule the flow runs again whose worker is offline; one machine at a time does so, or a run would start twice.

    Whoever still computes for such a run, behind a broken network, lost or loses the lease of its loop.
    """
    pool = pool_of(workspace)
    try:
        with leased(workspace.state, f"pool:{pool}"):
            place = find_pool_place(workspace)
            return take_up(api, pool, online_workers(api, pool), runs_in_pods(place) if place else None)
    except StoreError:
        return []  # another machine does it, or a server is away: the next pass tries again
    except UsageError as error:
        return [str(error)]  # places.yaml is wrong


def _is_decided(signal: Signal, decided: list[Decision]) -> bool:
    """Return whether a signal, or one of its kind within STORM_S, is decided: an automation merges such events."""
    return any(
        decision.signal.id == signal.id
        or (
            decision.signal.kind == signal.kind != "unknown"
            and abs(decision.signal.at - signal.at) <= STORM_S
            and decision.at >= signal.at
        )
        for decision in decided
    )


def _of_signals(since: float) -> dict[str, Any]:
    """Return the filter for open or cancelled runs that may name a signal of time `since` or later."""
    after = datetime.fromtimestamp(since - STORM_S, UTC).isoformat()
    state = {"type": {"any_": [*OPEN_STATES, "CANCELLED"]}}
    return {
        "flows": {"name": {"any_": ["retrain"]}},
        "flow_runs": {"state": state, "expected_start_time": {"after_": after}},
    }


def _names(run: dict[str, Any], event: Event) -> bool:
    return bool((run["parameters"].get("signal") or {}).get("id") == event.payload["signal"]["id"])


def _heard_by(api: str, event: Event) -> set[str]:
    """Return ids of the deployments that enabled automations run on this event."""
    return {
        action["deployment_id"]
        for automation in automations_of(api, event.project)
        if automation["enabled"] and event.name in (automation["trigger"].get("expect") or ())
        for action in automation["actions"]
        if "deployment_id" in action
    }
