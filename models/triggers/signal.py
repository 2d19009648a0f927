"""Signals that request a loop, decisions about them, and the history that a policy needs.

Triggers with the wall clock and backtests with the data's clock use the same types.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from models.frozen_model import FrozenModel

Kind = Literal["schedule", "new_data", "decay", "broken_data", "drift", "person", "unknown"]
"""What asked for a loop. `unknown`: another version of Loopline wrote it, in a form that this one does not know."""
Action = Literal["retrain", "ask", "wait"]
Outcome = Literal["promoted", "kept", "rejected", "failed", "cancelled", "unchanged"]
EXPLAINED: tuple[Outcome, ...] = ("failed", "rejected", "cancelled")
"""Outcomes with a reason of their own; of the others the verdict gives it."""


def clock(timestamp: float) -> str:
    """Return a readable time; `timestamp` is in Unix seconds."""
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M} UTC"


class Signal(FrozenModel):
    """A request for a loop. `id` stays the same if the signal is sent again: a signal counts once."""

    id: str
    kind: Kind
    at: float = Field(description="Unix time, seconds.")
    reason: str = Field(description="In words, such as `roc_auc .71 (.70 to .72) is under .73 - .01`.")
    evidence: dict[str, Any] = Field(default_factory=dict, description="The numbers behind the reason.")


class PastLoop(FrozenModel):
    """A past loop, with the facts that the policy needs.

    `kept`: its challenger lost. `rejected`: its data failed the data validation. `cancelled`: a person ended it, which
    is no failure. `unchanged`: no input of the model had changed, so no model was trained.
    """

    loop_id: str
    began: float
    ended: float
    outcome: Outcome
    trigger: str = "person"
    device_seconds: float = 0.0
    reason: str = Field("", description="What ended a loop that failed, was cancelled, or whose data was rejected.")


class ProjectHistory(FrozenModel):
    """The history: loops, oldest first; labelled rows since the start of the last loop; the running loop."""

    loops: list[PastLoop] = Field(default_factory=list)
    new_labels: int = 0
    running: str | None = Field(None, description="Id of the loop that runs now.")
    open_approval: str | None = Field(None, description="Id of the signal that waits for a person's word.")
    signals: frozenset[str] = Field(
        frozenset(), description="Ids of signals with a final decision: not those that wait until a known time."
    )


class Decision(FrozenModel):
    """The decision of the policy about a signal, with all reasons. A decision not to retrain is recorded too."""

    signal: Signal
    at: float
    action: Action
    reasons: list[str]
    until: float | None = Field(None, description="When the same signal would be weighed otherwise, if that is known.")
    loop_id: str | None = None
    flow_run: str | None = Field(None, description="Id of the Prefect run that decided.")
    by: str | None = Field(None, description="Who answered, where a person was asked.")
