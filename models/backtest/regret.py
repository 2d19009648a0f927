"""Each policy's loss against the best policy and against retraining every period, with confidence intervals.

A policy's value is the mean over periods, weighted by their rows, of the metric of the model that served. Every
interval comes from a two-level paired bootstrap: it draws periods, and rows within each period, the same for every
policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from models.backtest.replay import PolicyHistory
from models.backtest.score import Score
from models.frozen_model import FrozenModel
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
    best_share: float = Field(description="Share of the resamples in which no policy was better.")
    loops: int
    won: int
    lost: int
    failed: int
    device_seconds: float


@dataclass(frozen=True)
class _PeriodValues:
    """One policy's metric by period, plain (period,) and resampled (resample, period); more is better."""

    plain: Array
    drawn: Array


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
    values = {course.policy: _values(course, scores, sign) for course in courses}
    counted = np.isfinite([each.plain for each in values.values()]).all(axis=0)
    periods = [step.period for step in courses[0].steps]
    rows = np.array([scores[step.model, step.period].num_rows for step in courses[0].steps], dtype=np.float64)
    weight = np.where(counted, rows, 0.0)
    means = {name: _mean(each.plain, weight) for name, each in values.items()}
    drawn = _drawn_means(values, weight, seed)
    best = max(means, key=lambda name: (means[name], -_course(courses, name).device_seconds))
    highest = np.max(list(drawn.values()), axis=0)
    regrets = []
    for course in courses:
        name = course.policy
        outcomes = [loop.outcome for loop in course.loops]
        regrets.append(
            PolicyRegret(
                policy=name,
                points=[
                    _point(step.model, period, scores, confidence)
                    for step, period in zip(course.steps, periods, strict=True)
                ],
                mean=_spread(means[name], drawn[name], confidence, sign),
                regret=_spread(means[best] - means[name], drawn[best] - drawn[name], confidence),
                regret_to_every=_to_every(means, drawn, name, confidence),
                best_share=float(np.mean(drawn[name] >= highest - _slack(highest))),
                loops=len(outcomes),
                won=outcomes.count("promoted"),
                lost=outcomes.count("kept"),
                failed=outcomes.count("failed"),
                device_seconds=course.device_seconds,
            )
        )
    return regrets


def _course(courses: Sequence[PolicyHistory], name: str) -> PolicyHistory:
    return next(course for course in courses if course.policy == name)


def _values(course: PolicyHistory, scores: Scores, sign: int) -> _PeriodValues:
    values = [scores[step.model, step.period] for step in course.steps]
    return _PeriodValues(
        sign * np.array([each.value for each in values]), sign * np.stack([each.drawn for each in values], axis=1)
    )


def _mean(values: Array, weight: Array) -> float:
    total = weight.sum()
    return float(np.where(weight > 0, values, 0.0) @ weight / total) if total else float("nan")


def _drawn_means(values: Mapping[str, _PeriodValues], weight: Array, seed: int) -> dict[str, Array]:
    """Return each policy's mean in each resample (resample,); a value undefined for one policy is left out for all."""
    stacked = np.stack([each.drawn for each in values.values()])
    policies, resamples, num_periods = stacked.shape
    times = np.stack(list(draws(num_periods, resamples, seed)))
    defined = np.isfinite(stacked).all(axis=0) & (weight > 0)
    weights = np.where(defined, times * weight, 0.0)
    total = weights.sum(axis=1)
    sums = np.einsum("prn,rn->pr", np.where(defined, stacked, 0.0), weights)
    means = np.divide(sums, total, out=np.full((policies, resamples), np.nan), where=total > 0)
    return dict(zip(values, means, strict=True))


def _spread(value: float, drawn: Array, confidence: float, sign: int = 1) -> Estimate:
    low, high = percentile_interval(sign * drawn, confidence) or (None, None)
    return Estimate(value=sign * value, low=low, high=high)


def _to_every(means: Mapping[str, float], drawn: Mapping[str, Array], name: str, confidence: float) -> Estimate | None:
    from models.backtest.policies import EVERY

    if EVERY not in means:
        return None
    return _spread(means[EVERY] - means[name], drawn[EVERY] - drawn[name], confidence)


def _point(model: str, period: str, scores: Scores, confidence: float) -> PeriodMetric:
    score = scores[model, period]
    return PeriodMetric(period=period, rows=score.num_rows, metric=_spread(score.value, score.drawn, confidence))


def _slack(values: Array) -> Array:
    # Sums in another order differ in the last bits, but equal policies must count as equal.
    return np.asarray(1e-12 * np.maximum(1.0, np.abs(values)))
