"""The contents of the overview: plain data, collected by `tasks/operations/overview.py`, then displayed."""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

from pydantic import Field

from models.frozen_model import FrozenModel
from models.monitoring.report import MonitoringReport, WindowReport
from models.serving.registry import ChampionMove, RegisteredVersion
from models.triggers.signal import Decision, Outcome, Signal

Colour = Literal["green", "amber", "red"]
LoopState = Literal["never run", "running", "finished", "rejected", "failed", "cancelled", "killed"]
EARLY: tuple[LoopState, ...] = ("failed", "killed", "cancelled")
"""States of a loop that a run continues."""

WHAT_TO_DO = "loopline docs how-to/when-it-fails#a-tool-is-behind"
"""Opens the page that says what to do where a tool lacks rows."""
REGISTRY_AWAY = "its champion is not known: the registry cannot be read"


class TrafficLight(FrozenModel):
    """A traffic light; `reasons` in words, the reason that decided the colour first."""

    colour: Colour
    reasons: list[str] = Field(min_length=1)

    @property
    def reason(self) -> str:
        """The reason that decided the colour."""
        return self.reasons[0]


class LastLoop(FrozenModel):
    """The last loop, from its loop record. `step` is its current or last step; empty when it finished."""

    state: LoopState = "never run"
    loop_id: str | None = None
    began: float | None = None
    trigger: str = ""
    flow_run: str = Field("", description="Prefect's id of its run; empty where it is not known.")
    step: str = ""
    failure: str = Field("", description="Why it failed, was cancelled, or its data was rejected.")
    decision: str | None = Field(None, description="Of the last loop that came to a verdict.")
    reasons: list[str] = Field(default_factory=list)


class FinishedLoop(FrozenModel):
    """One finished loop: a row of the history. `reason`: of the verdict if there is one, else why it failed."""

    loop_id: str
    ended: float
    outcome: Outcome
    trigger: str = ""
    seconds: float | None = None
    device_seconds: float | None = None
    version: str = ""
    reason: str = ""


class IngestSummary(FrozenModel):
    """The last ingest, and its failed expectations."""

    ingested: float | None = None
    rows: int | None = None
    feedback: dict[str, int] = Field(default_factory=dict, description="What became of labelled predictions, counted.")
    dataset: str = ""
    status: str = Field("", description="valid, warned, rejected or error; of raw and prepared the worse.")
    failing: list[str] = Field(default_factory=list, description="The expectations that failed, in words.")
    drifting: list[str] = Field(default_factory=list, description="Where it differs from the champion's data.")


class SearchSummary(FrozenModel):
    """The last search: the settings that it chose, of one trial or of an ensemble, and their value on validation."""

    study: str = ""
    trials: int = 0
    value: float | None = None
    params: dict[str, Any] = Field(default_factory=dict)


class PredictionLogSummary(FrozenModel):
    """The content of the prediction log, by its files; monitoring counts the rows."""

    last: float | None = Field(None, description="When the last prediction was logged.")
    size_bytes: int = 0


class ServingSummary(FrozenModel):
    """The versions that a server of this workspace serves, or served last."""

    workers: int = Field(0, description="Processes that answer now.")
    answers: str = Field(description="In words: which versions, and what share each.")
    troubles: list[str] = Field(default_factory=list, description="Versions that were refused or gave a place back.")


class PendingApproval(FrozenModel):
    """A run that waits for approval by a person."""

    flow_run: str = Field(description="Id of the Prefect run that waits.")
    reason: str
    since: float
    until: float = Field(description="When it stops waiting; Unix time.")


class Lag(NamedTuple):
    """What a tool lacks of a project.

    Args:
        tool: MLflow or Prefect.
        rows: What it lacks: logs of loops, moves of champions, events.
        project: The project.
        num_rows: The number of these.
        since: When the oldest began to wait, Unix time; the log of a loop waits from the loop's end.
    """

    tool: str
    rows: str
    project: str
    num_rows: int
    since: float

    @property
    def seconds(self) -> float:
        """For how long the oldest has waited."""
        return max(0.0, time.time() - self.since)


class ProjectFacts(FrozenModel):
    """All known facts of a project, from records, files and registry alone."""

    name: str
    folder: str
    description: str = ""
    error: str | None = Field(None, description="Why its spec or stores could not be read; the rest is then empty.")
    registry: str = Field("", description="Why the registry cannot be read: champion and challenger are not known.")
    mlflow: str = Field("", description="Why MLflow does not follow the moves of its champion; empty: it does.")
    mlflow_looked: float | None = Field(None, description="When MLflow was last looked at; Unix time. None: never.")
    behind: list[Lag] = Field(default_factory=list, description="What MLflow and Prefect lack of it.")
    light: TrafficLight = TrafficLight(colour="amber", reasons=["nothing is known yet"])
    champion: RegisteredVersion | None = None
    challenger: RegisteredVersion | None = None
    previous: str | None = Field(None, description="The version that a rollback would give the place to.")
    moves: list[ChampionMove] = Field(default_factory=list, description="Newest first.")
    loop: LastLoop = LastLoop()
    history: list[FinishedLoop] = Field(default_factory=list, description="Newest first.")
    owed: list[str] = Field(default_factory=list, description="Steps that a run would carry out now.")
    data: IngestSummary = IngestSummary()
    search: SearchSummary = SearchSummary()
    monitor: MonitoringReport | None = None
    decisions: list[Decision] = Field(default_factory=list, description="Newest first.")
    waiting: PendingApproval | None = None
    undecided: list[Signal] = Field(default_factory=list, description="Asked and in no decision yet, oldest first.")
    next_loop: float | None = None
    next_monitoring: float | None = None
    schedule: str = Field("", description="The spec's own words of when it is retrained.")
    triggers: list[str] = Field(default_factory=list, description="What else may begin a loop by itself.")
    predictions: PredictionLogSummary = PredictionLogSummary()
    serving: ServingSummary | None = Field(None, description="None where no server of this workspace ever answered.")
    pages: list[str] = Field(default_factory=list, description="The newest report pages that are there, by name.")
    loop_pages: dict[str, list[str]] = Field(
        default_factory=dict, description="The report pages of loops, by loop: the versions', the last and past loops'."
    )
    backtest: str = Field("", description="The summary of the last backtest.")

    @property
    def training_word(self) -> str:
        """What its next training is called: the first one repeats nothing. Unread stores hide what was there."""
        has_version = self.champion or self.challenger or self.registry or self.error
        return "Retrain" if has_version else "Train"

    @property
    def is_moving(self) -> bool:
        """Whether a loop runs, or was asked for and has not begun yet: the project's page then renews itself."""
        newest = self.decisions[0] if self.decisions else None
        is_coming = newest is not None and newest.action == "retrain" and newest.at > (self.loop.began or 0.0)
        return self.loop.state == "running" or bool(self.undecided) or is_coming

    @property
    def current_monitoring(self) -> MonitoringReport | None:
        """The last monitoring report, if it is about the present champion or nobody can say; else None."""
        if self.monitor is None or self.registry:
            return self.monitor
        return self.monitor if self.champion and self.monitor.champion == self.champion.number else None

    @property
    def is_behind(self) -> bool:
        """Whether a tool lacks rows of it, or MLflow does not follow."""
        return bool(self.mlflow or self.behind)

    @property
    def summaries(self) -> list[str]:
        """The reasons of its light for a list of projects, where what concerns the registry stands once for all."""
        return [REGISTRY_AWAY if reason == self.registry else reason for reason in self.light.reasons]

    @property
    def windows(self) -> list[WindowReport]:
        """The complete windows of the present champion, oldest first; none before its first monitoring run."""
        return self.current_monitoring.of_champion() if self.current_monitoring else []

    @property
    def loops_of_versions(self) -> dict[str, str]:
        """The loops that made the champion and the challenger, and the last loop, each by what it is, in words."""
        named = {
            f"{role} {version.number}": version.loop_id
            for role, version in (("champion", self.champion), ("challenger", self.challenger))
            if version
        }
        last = self.loop.loop_id or ""
        return named if last in named.values() else {**named, "last loop": last}

    @property
    def champion_since(self) -> ChampionMove | None:
        """The change that made the present champion."""
        return self.moves[0] if self.moves else None


class ServiceSummary(FrozenModel):
    """One service of the platform. `url` is its page, None if it has none."""

    state: Literal["running", "starting", "backing off", "failed", "stopped", "elsewhere", "unknown"]
    url: str | None = None
    restarts: int = Field(0, description="How often it was started again since the platform is up.")
    detail: str = Field("", description="Its last trouble in words.")


class StoreUsage(FrozenModel):
    """The size of a store."""

    name: str
    size_bytes: int


class DiskUsage(FrozenModel):
    """The disk with the workspace."""

    free_bytes: int
    total_bytes: int


class Overview(FrozenModel):
    """The state of a whole workspace."""

    workspace: str
    at: float
    light: TrafficLight
    services: dict[str, ServiceSummary]
    disk: DiskUsage
    stores: list[StoreUsage]
    sized: float | None = Field(None, description="When the stores were measured; Unix time.")
    projects: list[ProjectFacts]
