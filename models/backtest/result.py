"""The result of a backtest, as plain data: `backtest.json`, also the source of the page and the terminal output."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from models.backtest.regret import PolicyRegret
from models.backtest.replay import PolicyHistory


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BacktestPeriod(_Part):
    """A period that was replayed."""

    name: str
    begin: float = Field(description="Unix time, seconds.")
    end: float
    rows: int


class Backtest(_Part):
    """The past replayed under several policies."""

    version: int = 1
    project: str
    metric: str
    direction: Literal["maximize", "minimize"]
    confidence: float
    margin: float = Field(description="The spec's judge.margin: what the recommendation counts as no loss.")
    cut: str = Field(description="How the past was cut: month, week, day or a number of rows.")
    label_delay_s: float = 0.0
    first_rows: int = Field(description="Rows of the periods that trained the first champion.")
    periods: list[BacktestPeriod] = Field(description="Those replayed, oldest first.")
    courses: list[PolicyHistory]
    policy_regrets: list[PolicyRegret] = Field(description="One a course, in the same order.")
    recommended: str = Field(description="The cheapest policy that is shown to lose no more than the margin.")
    summary: str = Field(description="The recommendation in one sentence.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Searched settings that every training took.")
    notes: list[str] = Field(default_factory=list, description="What a reader must know to trust it.")
    trained: int = Field(0, description="Trainings made for this run; others were found.")
    reused: int = 0
    seconds: float = 0.0
    made_at: float = Field(0.0, description="Unix time, seconds.")

    def course(self, policy: str) -> PolicyHistory:
        """Return the history of one policy."""
        return next(course for course in self.courses if course.policy == policy)

    def alike(self) -> list[list[str]]:
        """Return groups of policies that had the same champion in every period."""
        by_models: dict[tuple[str, ...], list[str]] = {}
        for course in self.courses:
            by_models.setdefault(tuple(step.model for step in course.steps), []).append(course.policy)
        return list(by_models.values())
