"""Events for Prefect, stored on disk in `.loopline/events/` until Prefect has received them.

An event has the same id however often it is sent, and is delivered once; while no server answers, it waits in `queue/`.
A signal of a project without a deployment in Prefect waits too, because no automation would receive it.
The sender delivers at once if it can; else the compactor delivers, or the next command that contacts the server.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import urllib.error
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from models.document import Document
from models.errors import StoreError
from models.files import write_json
from models.pipeline.keys import key_of
from models.triggers.signal import Kind, Signal
from tasks.host.workspace import Workspace
from tasks.prefect.flow_runs import ask
from tasks.prefect.prefect_server import PrefectServer

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
DECISION_MADE = "loopline.decision.made"

STORM_S = 10.0
"""Signals of one kind and project that come within this time start one run."""
OPEN = "open"
"""The folder of the signals without a decision yet (`tasks/platform/open_signals.py`)."""
BATCH = 50
TIMEOUT_S = 10.0
MOST_SENT_MARKS = 20_000
_NAMESPACE = uuid.UUID("6c6f6f70-6c69-6e65-8000-6576656e7473")


class Event(Document):
    """An event of a project; `text` describes it for a person."""

    name: str
    project: str
    text: str
    payload: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict, description="Of the resource: what an automation matches.")
    at: float = Field(default_factory=time.time, description="Unix time, seconds.")

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


def send(workspace: Workspace, event: Event) -> bool:
    """Store an event until Prefect has it, and try to deliver all waiting events; return whether none waits any longer.

    A signal is stored until it has a decision: `open_signals.ask_again` sends signals again that Prefect lost.

    Raises:
        StoreError: The disk is full or not writable.
    """
    folder = folder_of(workspace)
    if not (folder / "sent" / event.id).exists() and not any((folder / "queue").glob(f"*-{event.id}.json")):
        # The name begins with the time: the oldest are found without opening any.
        name = f"{max(0, round(event.at * 1000)):015d}-{event.id}.json"
        if event.is_signal and event.payload.get("signal"):
            write_json(folder / OPEN / name, event.model_dump(mode="json"))
        write_json(folder / "queue" / name, event.model_dump(mode="json"))
    deliver(workspace)
    return not waiting(workspace)


def waiting(workspace: Workspace) -> int:
    """Return how many events Prefect has not received yet."""
    return sum(1 for _ in (folder_of(workspace) / "queue").glob("*.json"))


def waits(workspace: Workspace, event: Event) -> bool:
    """Return whether Prefect has not received this event yet."""
    return any((folder_of(workspace) / "queue").glob(f"*-{event.id}.json"))


def deliver(workspace: Workspace) -> int:
    """Deliver waiting events, oldest first, if a server is known and answers; return how many it received.

    Several processes may call this at once: one delivers, the others return without work.
    """
    import filelock

    folder, address = folder_of(workspace), PrefectServer(workspace).api()
    if address is None or not waiting(workspace):
        return 0
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(folder / "deliver.lock", timeout=0):
        return _deliver(folder, address)
    return 0


def _deliver(folder: Path, address: str) -> int:
    taken, tried = 0, set[Path]()
    is_deaf = functools.cache(functools.partial(_is_deaf, address))
    with contextlib.suppress(StoreError):
        while paths := sorted(set((folder / "queue").glob("*.json")) - tried)[:BATCH]:
            batch = _unsent(folder, paths)
            heard = [(path, event) for path, event in batch if not (event.is_signal and is_deaf(event.project))]
            if not _hand_over(folder, address, heard):
                break
            taken += len(heard)
            tried |= set(paths)  # signals without an automation and unreadable files wait for another time
    _forget(folder / "sent")
    return taken


def _is_deaf(address: str, project: str) -> bool:
    """Return whether the server has no automation of a project: before the first deployment a signal starts no run."""
    return not automations_of(address, project)


def automations_of(address: str, project: str) -> list[dict[str, Any]]:
    """Return the automations that `loopline deploy` created for a project."""
    owned = {"automations": {"tags": {"all_": [TAG, owner_tag(project)]}}}
    automations: list[dict[str, Any]] = ask(address, "automations/filter", owned, timeout_s=TIMEOUT_S)
    return automations


def _unsent(folder: Path, paths: list[Path]) -> Iterator[tuple[Path, Event]]:
    """Yield the events of these files, each once; delete torn files and files of events that were delivered before."""
    seen: set[str] = set()
    for path in paths:
        try:
            event = Event.model_validate_json(path.read_text())
        except OSError:  # a passing error, such as no free file descriptor: keep the event
            continue
        except ValueError:
            path.unlink(missing_ok=True)
            continue
        if event.id in seen or (folder / "sent" / event.id).exists():
            path.unlink(missing_ok=True)
        else:
            seen.add(event.id)
            yield path, event


def _hand_over(folder: Path, address: str, batch: list[tuple[Path, Event]]) -> bool:
    """Post a batch; return whether it is settled.

    If Prefect refuses a batch as invalid, its events are posted one by one, and invalid events are moved to `refused/`.
    """
    if not batch:
        return True
    try:
        ask(address, "events", [posted(event) for _, event in batch], timeout_s=TIMEOUT_S)
    except StoreError as error:
        refusal = error.__cause__
        if not isinstance(refusal, urllib.error.HTTPError) or refusal.code not in (400, 413, 422):
            return False
        if len(batch) > 1:
            return all(_hand_over(folder, address, [one]) for one in batch)
        (folder / "refused").mkdir(exist_ok=True)
        batch[0][0].replace(folder / "refused" / batch[0][0].name)
        (folder / OPEN / batch[0][0].name).unlink(missing_ok=True)  # a retry would be refused again
        return True
    (folder / "sent").mkdir(exist_ok=True)
    for path, event in batch:
        (folder / "sent" / event.id).touch()
        with contextlib.suppress(FileNotFoundError):  # no signal, or decided before the delivery
            os.utime(folder / OPEN / path.name)
        path.unlink(missing_ok=True)
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


def _forget(sent: Path) -> None:
    """Delete the oldest marks of sent events; a signal that is repeated later is still known by its decision."""
    marks = list(sent.iterdir()) if sent.exists() else []
    if len(marks) > MOST_SENT_MARKS:
        with contextlib.suppress(OSError):
            for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime)[: len(marks) // 2]:
                mark.unlink()


def folder_of(workspace: Workspace) -> Path:
    """Return the folder of a workspace's events."""
    return workspace.state / "events"
