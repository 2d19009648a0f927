"""The outcome of a loop: its line in the project's history, and its event."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import DataError, GateRefused, LooplineError, StoreError
from models.pipeline.records import StepRecord
from models.training.costs.summary import of_results
from models.triggers.signal import EXPLAINED, Outcome, PastLoop
from tasks.host import database
from tasks.host.leases import Lease
from tasks.host.workspace import Workspace
from tasks.loop import history
from tasks.loop.champion import champion_stays
from tasks.loop.history import LoopRecord
from tasks.loop.loop import STOPS, Loop
from tasks.prefect.events import LOOP_ENDED, Event, deliver, send, store
from tasks.prefect.flow_runs import is_cancelled
from tasks.ranks.launcher import is_ended_by_person
from tasks.state.outbox import Outbox

if TYPE_CHECKING:
    from sqlalchemy import Connection

CANCELLED = "a person cancelled its run in Prefect"
WORDS: dict[Outcome, str] = {
    "promoted": "its model is the champion",
    "kept": "its model lost",
    "rejected": "its data was rejected",
    "failed": "it failed",
    "cancelled": "it was cancelled",
    "unchanged": "nothing had changed",
}


def conclude(loop: Loop, ended: LoopRecord, error: BaseException | None) -> None:
    """Record the end of a loop, and send its event.

    The loop's state, its line in the history and its event are one transaction: a process that is killed or paused
    leaves all of them, or none.

    Args:
        loop: The loop.
        ended: The loop's last state.
        error: What ended it; None if it came to its end.

    Raises:
        LeaseLostError: Another process has taken over the loop.
        StoreError: The database cannot be written.
    """
    outcome = outcome_of(loop.ran, loop.done, error)
    past = PastLoop(
        loop_id=loop.id,
        began=ended.began,
        ended=database.current_time(loop.workspace.state),
        outcome=outcome,
        trigger=loop.trigger,
        device_seconds=round(max(_spent(loop), reported_device_seconds(loop.outbox.lines().values())), 3),
        reason=_shown(error, outcome) if error is not None and outcome in EXPLAINED else "",
    )
    words = _words(loop, past, error)
    event = _event(loop.state, past, words, past.model_dump(mode="json"))

    def end(connection: Connection) -> None:
        history.close_loop(connection, loop.state, past)
        store(connection, event)

    history.save_loop(loop.state, ended, loop.lease, end)
    with contextlib.suppress(StoreError):  # the event is stored, and the next delivery sends it
        deliver(loop.workspace)


def conclude_killed(
    workspace: Workspace, state: Path, loop: LoopRecord, lease: Lease | None = None, *, is_cancelled: bool = False
) -> float:
    """Record and send the end of a killed loop, whose state still says `running`; return when it died.

    Two processes may find the same one, or one that was killed in between once more. So the event names the process
    that was killed, not the moment when it was found: it is the same event, and is sent once.

    Args:
        workspace: The workspace.
        state: The project's folder under `.loopline/projects/`.
        loop: The loop as its process left it.
        lease: The loop's lease, which this process has taken.
        is_cancelled: Whether a person had cancelled its flow run.

    Raises:
        LeaseLostError: Another process has taken over the loop.
    """
    lines = Outbox(state, loop.loop_id).lines().values()
    past = PastLoop(
        loop_id=loop.loop_id,
        began=loop.began,
        ended=_last_sign(loop, lines, lease.renewed if lease else None),
        outcome="cancelled" if is_cancelled else "failed",
        trigger=loop.trigger,
        device_seconds=round(reported_device_seconds(lines), 3),
        reason=CANCELLED if is_cancelled else "it was killed",
    )
    payload = {**past.model_dump(mode="json", exclude={"ended"}), "process": dict(loop.process)}
    history.record_loop(state, past, lease)
    send(workspace, _event(state, past, _without_promotion(workspace, past.reason, state.name), payload))
    return past.ended


def outcome_of(ran: list[str], done: dict[str, StepRecord], error: BaseException | None) -> Outcome:
    """Return the outcome of a loop from its records and the raised error."""
    if error is None:
        if "promote" not in ran:
            return "unchanged"
        return "promoted" if done["promote"].result["decision"] == "promote" else "kept"
    if isinstance(error, GateRefused) and "judge" in done:
        return "kept"
    if isinstance(error, (GateRefused, DataError)):
        return "rejected"
    return "cancelled" if is_ended_by_person(error, is_cancelled) else "failed"


def reported_device_seconds(lines: Iterable[Mapping[str, Any]]) -> float:
    """Return the device-seconds of all epochs that a loop reported, over all its attempts.

    Args:
        lines: The loop's lines of the outbox. A training that goes on, or takes over a trial, reports the same epochs
            again: an epoch with the same number and the same seconds counts once.
    """
    epochs: set[tuple[int, float]] = {
        (line["step"], value)
        for line in lines
        if line["op"] == "metrics"
        for name, value in line["metrics"].items()
        if name.endswith("device_s")
    }
    return math.fsum(seconds for _, seconds in epochs)


def _last_sign(loop: LoopRecord, lines: Iterable[Mapping[str, Any]], renewed: float | None) -> float:
    """Return when a killed loop last gave a sign of life: a report, or a renewed lease; at the earliest its begin."""
    reports = (float(line["at_ms"]) / 1000 for line in lines if "at_ms" in line)
    return max([loop.began, renewed or 0.0, *reports])


def _spent(loop: Loop) -> float:
    """Return the device-seconds of the steps that ran in this loop, and of a training that did not finish."""
    results = {name: loop.done[name].result if name in loop.ran else {} for name in ("search", "train")}
    costs = of_results(results["search"], results["train"])
    return loop.lost_device_s + (costs["total"].device_seconds if costs else 0.0)


def _words(loop: Loop, past: PastLoop, error: BaseException | None) -> str:
    words = WORDS[past.outcome]
    if past.outcome != "promoted":
        words = _without_promotion(loop.workspace, words, loop.spec.name)
    if past.outcome in ("promoted", "kept") and "judge" in loop.done:
        return f"{words}: {'; '.join(loop.done['judge'].result.get('reasons', []))}"
    if error is None:
        return words
    kind = type(error).__name__
    return f"{words}: {past.reason if kind in STOPS else f'{kind}: {error}'}"


def _without_promotion(workspace: Workspace, words: str, model: str) -> str:
    return "; ".join(filter(None, (words, champion_stays(workspace, model))))


def _shown(error: BaseException, outcome: Outcome) -> str:
    """Return an error in one line: our messages as they are, signals in words, others with their type."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "a person pressed Ctrl-C"
    if outcome == "cancelled":
        return CANCELLED
    if type(error).__name__ in STOPS:
        return "its process was ended by SIGTERM, as at a shutdown: a run continues it"
    text = " ".join(str(error).split())
    return text if isinstance(error, LooplineError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _event(state: Path, past: PastLoop, words: str, payload: dict[str, Any]) -> Event:
    text = f"loop {past.loop_id} ended: {words}"
    labels = {"loopline.outcome": past.outcome, "loopline.trigger": past.trigger}
    return Event(name=LOOP_ENDED, project=state.name, text=text, payload=payload, labels=labels)
