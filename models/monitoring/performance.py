"""The realised performance: the project's metric on labelled predictions, with its interval, and the test of decay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.judge.comparison import resample_models
from models.judge.verdict import Estimate
from models.metrics.metrics import Metric
from models.project_spec.monitor_and_retrain import Monitor

POOLED = 6
"""Number of the newest windows that the test of decay pools."""
CRITICAL, CRITICAL_FEW = 2.6, 3.3
"""Standard errors of the difference that are decay: over `POOLED` windows, and over fewer."""
DEPENDENT = 1.1
"""The critical values of dependent predictions are so many times as large: blocks of test rows show a little less than
the whole error. Forecasts 3, 7 and 14 steps ahead that do not change alarm within fifty windows in 5 to 8 % of cases
(simulated with 500 to 5,000 test rows; without it in up to 14 %)."""
HORIZON_TESTS = 5
"""Tests that each horizon counts as: all together alarm a fifth as often as their mean. So with the mean at most 10 %
of versions that do not change alarm within fifty windows (simulated with 2 to 28 horizons; with 1 it was 17 %)."""
FEWEST_LABELS = 500
"""Fewest labels of a pool of fewer windows, or half a window if that is less: 100 rows may hold 5 positives, whose
standard error is unreliable, and labels that come late test a window again with each look. Simulated with ten looks at
each of fifty windows: 31 % false alarms without this limit, 5 % with it."""
RESAMPLES = 400
"""With 400 resamples the ends of a 95 % interval vary by about a tenth of its width between seeds."""


def realised(
    metric: Metric,
    target: NDArray[np.int64 | np.float64],
    prediction: NDArray[np.float64],
    monitor: Monitor,
    seed: int = 0,
) -> Estimate | None:
    """Return the metric of labelled predictions with its bootstrap interval; None with too few labels or if undefined.

    None of a ranking too: the log of predictions does not say which rows were one group.

    Args:
        metric: The project's.
        target: Class indices or numbers (example,).
        prediction: Predictions in the form for metrics.
        monitor: The minimum number of labels, and the confidence of the interval.
        seed: The same seed gives the same interval.

    Cost: 400 times the metric.
    """
    if len(target) < monitor.min_labels or metric.is_of_groups:
        return None
    estimate = resample_models(metric, target, {"now": prediction}, RESAMPLES, seed).estimate("now", monitor.confidence)
    return estimate if estimate.value is not None else None


def of_dependent(
    estimate: Estimate,
    num: int,
    promoted: Estimate | None,
    num_dependent: int | None,
    confidence: float,
    promoted_confidence: float = 0.95,
) -> Estimate:
    """Return the metric of a window with an interval as wide as its labels need if they depend on each other.

    The log does not say which predictions are of one group or one time. The verdict knows it of the test examples, so
    the standard error of one label is at least that of one test example. Of windows of 1,000 labels, 95 % intervals
    cover the true metric in 87 to 96 % of cases, as if of independent rows in 14 to 95 %: steps with autocorrelations
    up to .95, days and groups that share an effect. It holds as far as a window mixes days or groups as the test rows
    do: groups of one test row each say nothing about groups of ten in a window (88 %).

    Args:
        estimate: With the interval of independent examples.
        num: Number of its labels.
        promoted: The metric at promotion, with the interval of the verdict.
        num_dependent: Number of test examples behind `promoted` if they depend on each other, else None.
        confidence: The confidence of `estimate`.
        promoted_confidence: The confidence of `promoted`.
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return estimate
    reach = _error_of_one(promoted, promoted_confidence, num_dependent) / math.sqrt(num) * _quantile(confidence)
    return Estimate(
        value=estimate.value,
        low=min(estimate.low, estimate.value - reach),
        high=max(estimate.high, estimate.value + reach),
    )


class PooledMetric(NamedTuple):
    """The metric over the newest windows, and the result of the test of decay."""

    estimate: Estimate
    num_windows: int
    decayed: bool


def pooled(
    metric: Metric,
    windows: Sequence[tuple[Estimate, int]],
    promoted: Estimate | None,
    monitor: Monitor,
    promoted_confidence: float = 0.95,
    num_tests: int = 1,
    num_dependent: int | None = None,
) -> PooledMetric | None:
    """Test whether the newest windows together are worse than the promotion by more than `monitor.margin`.

    All `POOLED` windows are tested at `CRITICAL`; fewer of them at `CRITICAL_FEW`, so that a large fall is found at
    once, but only if they hold `FEWEST_LABELS` or as many as half a window. Simulated
    (tests/unit/models/monitoring/test_performance.py): a fall of ROC AUC from .75 to .67 at 5 % positives, with windows
    of 1,000 and 5,000 test rows, is found within six windows in at least 80 % of cases; a version that does not change
    alarms within fifty windows in at most 10 %.

    Args:
        metric: The project's.
        windows: The metric and the number of its labels in each window, oldest first; the last `POOLED` count.
        promoted: The metric at promotion.
        monitor: The margin, and the confidence of the windows' intervals.
        promoted_confidence: The confidence of the interval at promotion.
        num_tests: Number of such tests of a window: the critical values are corrected for them (Bonferroni).
        num_dependent: Number of test examples that depend on each other: scales the least standard error of a window.

    Returns:
        The pool of windows that is furthest from the promotion; None without enough labels, verdict, or intervals.

    Source: inverse-variance pooling of independent estimates, with the numbers of labels as weights: Cochran (1954),
    Biometrics 10(1).
    """
    if promoted is None or promoted.value is None or not windows or _error(windows[-1][0], monitor.confidence) is None:
        return None
    newest = [pair for pair in windows if _error(pair[0], monitor.confidence) is not None][-POOLED:]
    error_before = _error(promoted, promoted_confidence) or 0.0
    of_one, wider = _error_of_one(promoted, promoted_confidence, num_dependent), DEPENDENT if num_dependent else 1.0
    best: tuple[float, PooledMetric] | None = None
    fewest = min(FEWEST_LABELS, monitor.window // 2)
    for num in range(1, len(newest) + 1):
        if num < POOLED and sum(count for _, count in newest[-num:]) < fewest:
            continue
        value, error = _mean(newest[-num:], monitor.confidence, of_one)
        lost = metric.sign * (promoted.value - value) - (monitor.margin or 0.0)
        distance = _distance(lost, math.hypot(error, error_before))
        beyond = distance - wider * _corrected(CRITICAL if num == POOLED else CRITICAL_FEW, num_tests)
        if best is None or beyond > best[0]:
            reach = error * _quantile(monitor.confidence)
            best = beyond, PooledMetric(Estimate(value=value, low=value - reach, high=value + reach), num, beyond > 0)
    return best[1] if best else None


def _distance(lost: float, error: float) -> float:
    """Return a loss in standard errors; infinite without error."""
    return lost / error if error > 0 else math.copysign(math.inf, lost) if lost else 0.0


def _corrected(critical: float, num_tests: int) -> float:
    """Return the critical value with which all tests together alarm as often as one with `critical`."""
    from scipy.special import ndtr, ndtri

    return critical if num_tests == 1 else float(-ndtri(ndtr(-critical) / num_tests))


def _mean(windows: Sequence[tuple[Estimate, int]], confidence: float, error_of_one: float) -> tuple[float, float]:
    """Return the metric over all windows and its standard error.

    That of one label is at least `error_of_one`: predictions depend on each other where test examples do, which the
    windows' own intervals leave out.
    """
    total = sum(count for _, count in windows)
    errors = [
        max(_error(estimate, confidence) or 0.0, error_of_one / math.sqrt(max(1, count))) * count / total
        for estimate, count in windows
    ]
    return sum((estimate.value or 0.0) * (count / total) for estimate, count in windows), math.hypot(*errors)


def _error_of_one(promoted: Estimate | None, confidence: float, num_dependent: int | None) -> float:
    """Return the standard error of one test example among `num_dependent`; 0 if they are independent or not known."""
    error = _error(promoted, confidence) if promoted and num_dependent else None
    return (error or 0.0) * math.sqrt(num_dependent or 0)


def _error(estimate: Estimate, confidence: float) -> float | None:
    """Return the standard error behind an interval."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / (2 * _quantile(confidence))


def _quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))
