"""The outcome of a loop: its line in the project's history, and its event."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import DataError, GateRefused, LooplineError, StoreError
from models.training.costs.summary import of_results
from models.triggers.signal import Outcome, PastLoop
from tasks.host.workspace import Workspace
from tasks.loop import history
from tasks.loop.history import LoopRecord
from tasks.prefect.events import LOOP_ENDED, Event, send

if TYPE_CHECKING:
    from tasks.loop.loop import Loop

WORDS: dict[Outcome, str] = {
    "promoted": "its model is the champion",
    "kept": "its model lost; the champion stays",
    "rejected": "its data was rejected; the champion stays",
    "failed": "it failed; the champion stays",
    "unchanged": "nothing had changed; the champion stays",
}


def conclude(loop: Loop, began: float, error: BaseException | None) -> None:
    """Record the end of a loop in the history and send its event; a full disk only adds a note to the report."""
    outcome = outcome_of(loop, error)
    past = PastLoop(
        loop_id=loop.id,
        began=began,
        ended=time.time(),
        outcome=outcome,
        trigger=loop.trigger,
        device_seconds=round(_spent(loop), 3),
        reason=_shown(error) if error is not None and outcome in ("failed", "rejected") else "",
    )
    try:
        _tell(loop.workspace, loop.state, past, _words(loop, past.outcome, error), past.model_dump(mode="json"))
    except StoreError as trouble:
        loop.report.note(f"the loop's end is not in its history: {trouble}")


def conclude_killed(workspace: Workspace, state: Path, loop: LoopRecord) -> None:
    """Record and send the end of a killed loop, whose state still says `running`.

    Two processes may find the same one, or one that was killed in between once more. So the event names the process
    that was killed, not the moment when it was found: it is the same event, and is sent once.
    """
    past = PastLoop(
        loop_id=loop.loop_id,
        began=loop.began,
        ended=time.time(),
        outcome="failed",
        trigger=loop.trigger,
        reason="it was killed",
    )
    payload = {**past.model_dump(mode="json", exclude={"ended"}), "process": dict(loop.process)}
    _tell(workspace, state, past, "it was killed; the champion stays", payload)


def outcome_of(loop: Loop, error: BaseException | None) -> Outcome:
    """Return the outcome of a loop from its records and the raised error."""
    if error is None:
        if "promote" not in loop.ran:
            return "unchanged"
        return "promoted" if loop.done["promote"].result["decision"] == "promote" else "kept"
    if isinstance(error, GateRefused) and "judge" in loop.done:
        return "kept"
    return "rejected" if isinstance(error, (GateRefused, DataError)) else "failed"


def _spent(loop: Loop) -> float:
    """Return the device-seconds of the steps that ran in this loop, and of a training that did not finish."""
    done = {name: loop.done[name].result if name in loop.ran else {} for name in ("search", "train")}
    costs = of_results(done["search"], done["train"])
    return loop.lost_device_s + (costs["total"].device_seconds if costs else 0.0)


def _words(loop: Loop, outcome: Outcome, error: BaseException | None) -> str:
    if outcome in ("promoted", "kept") and "judge" in loop.done:
        return f"{WORDS[outcome]}: {'; '.join(loop.done['judge'].result.get('reasons', []))}"
    return f"{WORDS[outcome]}: {type(error).__name__}: {error}" if error is not None else WORDS[outcome]


def _shown(error: BaseException) -> str:
    """Return an error in one line: our messages as they are, others with their type."""
    text = " ".join(str(error).split())
    return text if isinstance(error, LooplineError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def _tell(workspace: Workspace, state: Path, past: PastLoop, words: str, payload: dict[str, Any]) -> None:
    history.record_loop(state, past)
    text = f"loop {past.loop_id} ended: {words}"
    labels = {"loopline.outcome": past.outcome, "loopline.trigger": past.trigger}
    send(workspace, Event(name=LOOP_ENDED, project=state.name, text=text, payload=payload, labels=labels))
