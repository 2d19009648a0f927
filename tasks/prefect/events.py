"""Events for Prefect, stored in the state database until Prefect has received them.

An event has the same id however often it is sent, and is delivered once; while no server answers, it waits.
A signal of a project without a deployment in Prefect waits too, because no automation would receive it.
The sender delivers at once if it can; else the compactor delivers, or the next command that contacts the server.
"""

from __future__ import annotations

import contextlib
import functools
import time
import urllib.error
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field, ValidationError, field_validator
from sqlalchemy import func, select

from models.errors import StoreError
from models.frozen_model import FrozenModel
from models.pipeline.keys import key_of
from models.triggers.signal import Kind, Signal
from tasks.host import database
from tasks.host.locks import tried
from tasks.host.tables import events
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer

if TYPE_CHECKING:
    from sqlalchemy import Connection

SIGNALS: dict[Kind, str] = {
    "new_data": "loopline.data.arrived",
    "decay": "loopline.model.decayed",
    "broken_data": "loopline.data.broken",
    "drift": "loopline.predictions.drifted",
    "person": "loopline.person.asked",
}
TAG = "loopline"
LOOP_ENDED = "loopline.loop.ended"
CHAMPION_MOVED = "loopline.champion.moved"
RELEASE_CHANGED = "loopline.release.changed"
DECISION_MADE = "loopline.decision.made"

STORM_S = 10.0
"""Signals of one kind and project that come within this time start one run."""
BATCH = 50
TIMEOUT_S = 5.0
WAITING = "waiting"
_NAMESPACE = uuid.UUID("6c6f6f70-6c69-6e65-8000-6576656e7473")


class Event(FrozenModel):
    """An event of a project; `text` describes it for a person."""

    name: str
    project: str
    text: str
    payload: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict, description="Of the resource: what an automation matches.")
    at: float = Field(default_factory=time.time, description="Unix time, seconds.")

    @field_validator("payload")
    @classmethod
    def _names_its_signal(cls, payload: dict[str, Any]) -> dict[str, Any]:
        signal = payload.get("signal")
        if signal is not None and not (isinstance(signal, dict) and isinstance(signal.get("id"), str)):
            raise ValueError(f"signal: got {signal!r}, expected a signal with an id")
        return payload

    @property
    def is_signal(self) -> bool:
        """Whether the event asks for a loop."""
        return self.name in SIGNALS.values()

    @property
    def id(self) -> str:
        """The event's id, equal for a repeated event: it depends on the signal's id, else on all but the time."""
        signal = self.payload.get("signal")
        identity = {"signal": signal["id"]} if signal else {"text": self.text, "payload": self.payload}
        content = {"name": self.name, "project": self.project, **identity}
        return str(uuid.uuid5(_NAMESPACE, key_of(content)))


def owner_tag(project: str) -> str:
    """Return the tag that identifies the automations of a project."""
    return f"owner:{project}"


def of_signal(project: str, signal: Signal) -> Event:
    """Build the event of a signal. A schedule needs none: Prefect has its own schedules."""
    payload = {"signal": signal.model_dump(mode="json")}
    return Event(name=SIGNALS[signal.kind], project=project, text=signal.reason, payload=payload, at=signal.at)


class OpenSignal(NamedTuple):
    """The event of a signal without a decision, and when it was last sent (Unix time); None while it waits."""

    event: Event
    sent: float | None


def send(workspace: Workspace, event: Event) -> bool:
    """Store an event until Prefect has it, and try to deliver all waiting events; return whether none waits any longer.

    A signal is stored until it has a decision: `open_signals.ask_again` sends signals again that Prefect lost.

    Raises:
        StoreError: The database cannot be written.
    """
    with database.writing(workspace.state) as connection:
        store(connection, event)
    deliver(workspace)
    return not waiting(workspace)


def store(connection: Connection, event: Event) -> None:
    """Store an event until Prefect has it, in the transaction of what it tells; `deliver` sends it afterwards."""
    row = {"id": event.id, "project": event.project, "content": database.plain(event), "state": WAITING}
    is_open = event.is_signal and bool(event.payload.get("signal"))
    if connection.scalar(select(events.c.id).where(events.c.id == event.id)) is None:
        connection.execute(events.insert().values(**row, is_open=is_open))


def waiting(workspace: Workspace) -> int:
    """Return how many events Prefect has not received yet."""
    with database.reading(workspace.state) as connection:
        return connection.scalar(select(func.count()).where(events.c.state == WAITING)) or 0


def open_signals(workspace: Workspace) -> list[OpenSignal]:
    """Return the signals without a decision, in the order in which they were sent first."""
    rows = select(database.text(events.c.content), events.c.sent).where(events.c.is_open).order_by(events.c.number)
    with database.reading(workspace.state) as connection:
        stored = [(_parsed(row.content), row.sent) for row in connection.execute(rows)]
    return [OpenSignal(event, sent) for event, sent in stored if event is not None and event.payload.get("signal")]


def _parsed(content: str) -> Event | None:
    """Return a stored event; None for one of another Loopline in an unknown form, which that Loopline delivers."""
    try:
        return Event.model_validate_json(content)
    except ValidationError:
        return None


def change(workspace: Workspace, chosen: Iterable[Event], **values: Any) -> None:
    """Change columns of stored events, such as `is_open=False` for a decided signal.

    Raises:
        StoreError: The database cannot be written.
    """
    with database.writing(workspace.state) as connection:
        connection.execute(events.update().where(events.c.id.in_([event.id for event in chosen])).values(values))


def deliver(workspace: Workspace) -> int:
    """Deliver waiting events, oldest first, if a server is known and answers; return how many it received.

    Several processes may call this at once: one delivers, the others return without work.
    """
    address = PrefectServer(workspace).api()
    if address is None or not waiting(workspace):
        return 0
    workspace.make()
    with tried(workspace.locks / "events.lock") as is_ours:
        return _deliver(workspace, address) if is_ours else 0


def _deliver(workspace: Workspace, address: str) -> int:
    num_accepted = last = 0
    is_deaf = functools.cache(functools.partial(_is_deaf, address))
    with contextlib.suppress(StoreError):
        while batch := _waiting_after(workspace, last):
            last = max(batch)
            oldest_first = sorted(filter(None, batch.values()), key=lambda event: event.at)
            heard = [event for event in oldest_first if not (event.is_signal and is_deaf(event.project))]
            if not _post(workspace, address, heard):
                break
            num_accepted += len(heard)
    return num_accepted


def _waiting_after(workspace: Workspace, last: int) -> dict[int, Event | None]:
    """Return the next waiting events by their numbers, None for an unknown form: it waits, and delays no other."""
    columns = events.c.number, database.text(events.c.content)
    rows = select(*columns).where(events.c.state == WAITING, events.c.number > last)
    with database.reading(workspace.state) as connection:
        batch = connection.execute(rows.order_by(events.c.number).limit(BATCH))
        return {row.number: _parsed(row.content) for row in batch}


def _is_deaf(address: str, project: str) -> bool:
    """Return whether the server has no automation of a project: before the first deployment a signal starts no run."""
    return not automations_of(address, project)


def automations_of(address: str, project: str) -> list[dict[str, Any]]:
    """Return the automations that `loopline deploy` created for a project."""
    owned = {"automations": {"tags": {"all_": [TAG, owner_tag(project)]}}}
    automations: list[dict[str, Any]] = ask(address, "automations/filter", owned, timeout_s=TIMEOUT_S)
    return automations


def _post(workspace: Workspace, address: str, batch: list[Event]) -> bool:
    """Post a batch; return whether it is settled.

    If Prefect refuses a batch as invalid, its events are posted one by one, and invalid events are not sent again.
    """
    if not batch:
        return True
    try:
        ask(address, "events", [posted(event) for event in batch], timeout_s=TIMEOUT_S)
    except StoreError as error:
        refusal = error.__cause__
        if not isinstance(refusal, urllib.error.HTTPError) or refusal.code not in (400, 413, 422):
            return False
        if len(batch) > 1:
            return all(_post(workspace, address, [event]) for event in batch)
        change(workspace, batch, state="refused", is_open=False)
        return True
    change(workspace, batch, state="sent", sent=database.current_time(workspace.state))
    return True


def posted(event: Event) -> dict[str, Any]:
    """Return an event in Prefect's form. It occurs at its delivery: automations ignore events older than their window.

    Source: prefect.server.events.triggers.evaluate, "late, out-of-order message".
    """
    happened = datetime.fromtimestamp(event.at, UTC).isoformat()
    return {
        "id": event.id,
        "event": event.name,
        "occurred": datetime.now(UTC).isoformat(),
        "resource": {
            "prefect.resource.id": f"loopline.project.{event.project}",
            "prefect.resource.name": event.project,
            **event.labels,
        },
        "payload": {"text": event.text, "happened": happened, **event.payload},
    }
