"""The result of a backtest: each policy's loss against the best one and against retraining every period.

A policy's value is the mean over periods, weighted by their rows, of the metric of the model that served. Every
interval comes from a two-level paired bootstrap: it draws periods, and rows within each period, the same for every
policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from models.backtest.contest import Score
from models.backtest.policies import EVERY
from models.backtest.replay import PolicyHistory, ReplayedPeriod
from models.frozen_model import FrozenModel
from models.judge.gates import number
from models.judge.verdict import Estimate
from models.metrics.bootstrap import draws, percentile_interval
from models.metrics.metrics import Array

FEW_PERIODS = 10
"""With fewer periods, resampling them says little about future periods."""


Scores = Mapping[tuple[str, str], Score]
"""Scores by model and period."""


class PeriodMetric(FrozenModel):
    """A policy in one period: its model's metric with the interval of row resampling."""

    period: str
    rows: int
    metric: Estimate


class PolicyRegret(FrozenModel):
    """The result of a policy. A regret is the other policy's gain: above zero the other was better, in any metric."""

    policy: str
    points: list[PeriodMetric]
    mean: Estimate = Field(description="Over the periods in which every policy's metric is defined.")
    regret: Estimate = Field(description="Against the best policy in hindsight.")
    regret_to_every: Estimate | None = Field(None, description="Against retraining at the end of every period.")
    loops: int
    won: int
    lost: int
    failed: int
    device_seconds: float


class BacktestPeriod(FrozenModel):
    """A period that was replayed."""

    name: str
    begin: float = Field(description="Unix time, seconds.")
    end: float
    rows: int


class Backtest(FrozenModel):
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


def policy_regrets(
    courses: Sequence[PolicyHistory], scores: Scores, sign: int, confidence: float = 0.95, seed: int = 0
) -> list[PolicyRegret]:
    """Return the result of each policy history, in their order.

    Args:
        courses: Histories of the same periods.
        scores: For every (model, period) that occurs in them.
        sign: 1 when more of the metric is better, -1 when less is.
        confidence: Confidence of the intervals.
        seed: Seed for drawing periods.

    Source: Davison and Hinkley (1997), Bootstrap Methods and their Application, 3.8: drawing rows again within drawn
    periods overstates the spread rather than understating it.
    """
    names = [course.policy for course in courses]
    served = [[scores[step.model, step.period] for step in course.steps] for course in courses]
    values = sign * np.array([[score.value for score in row] for row in served])  # (policy, period), more is better
    drawn = sign * np.array([[score.drawn for score in row] for row in served])  # (policy, period, resample)
    rows = np.array([score.num_rows for score in served[0]], dtype=np.float64)
    weight = np.where(np.isfinite(values).all(axis=0), rows, 0.0)
    means = _means(values[..., None], weight[:, None])[:, 0]
    times = np.stack(list(draws(len(rows), drawn.shape[2], seed)), axis=1)  # (period, resample)
    drawn_means = _means(drawn, weight[:, None] * times)
    best = max(range(len(courses)), key=lambda place: (means[place], -courses[place].device_seconds))

    def regret_to(reference: int, place: int) -> Estimate:
        return _spread(means[reference] - means[place], drawn_means[reference] - drawn_means[place], confidence)

    regrets = []
    for place, course in enumerate(courses):
        outcomes = [loop.outcome for loop in course.loops]
        regrets.append(
            PolicyRegret(
                policy=course.policy,
                points=[_point(*pair, confidence) for pair in zip(course.steps, served[place], strict=True)],
                mean=_spread(means[place], drawn_means[place], confidence, sign),
                regret=regret_to(best, place),
                regret_to_every=regret_to(names.index(EVERY), place) if EVERY in names else None,
                loops=len(outcomes),
                won=outcomes.count("promoted"),
                lost=outcomes.count("kept"),
                failed=outcomes.count("failed"),
                device_seconds=course.device_seconds,
            )
        )
    return regrets


def recommended(policy_regrets: Sequence[PolicyRegret], margin: float) -> PolicyRegret:
    """Return the cheapest policy that is shown to lose no more than `margin`; else the best one in hindsight."""

    def regret(candidate: PolicyRegret) -> float:
        return float("inf") if candidate.regret.value is None else candidate.regret.value

    best = min(policy_regrets, key=lambda candidate: (regret(candidate), candidate.device_seconds, candidate.loops))
    proven = [
        candidate
        for candidate in policy_regrets
        if candidate.regret.high is not None and candidate.regret.high <= margin
    ]
    return min([best, *proven], key=lambda candidate: (candidate.device_seconds, candidate.loops, regret(candidate)))


def summary(chosen: PolicyRegret, metric: str) -> str:
    """Return the recommendation of a policy in one sentence."""
    cost = f"{chosen.loops} loop{'' if chosen.loops == 1 else 's'}, {chosen.device_seconds:.0f} device-seconds"
    lost = f"regret {number(chosen.regret.value)}, at most {number(chosen.regret.high)} by the interval"
    return f"Take {chosen.policy}: mean {metric} {number(chosen.mean.value)}, {lost}; {cost}."


def _means(values: Array, weight: Array) -> Array:
    """Return means over the periods (policy, resample); a value undefined for one policy is left out for all.

    Args:
        values: The metric (policy, period, resample).
        weight: The weight of each period in each resample (period, resample).
    """
    weight = np.where(np.isfinite(values).all(axis=0), weight, 0.0)
    total = weight.sum(axis=0)
    sums = np.einsum("pnr,nr->pr", np.where(weight > 0, values, 0.0), weight)
    return np.asarray(np.divide(sums, total, out=np.full(sums.shape, np.nan), where=total > 0))


def _spread(value: float, drawn: Array, confidence: float, sign: int = 1) -> Estimate:
    low, high = percentile_interval(sign * drawn, confidence) or (None, None)
    return Estimate(value=sign * value, low=low, high=high)


def _point(step: ReplayedPeriod, score: Score, confidence: float) -> PeriodMetric:
    metric = _spread(score.value, score.drawn, confidence)
    return PeriodMetric(period=step.period, rows=score.num_rows, metric=metric)
