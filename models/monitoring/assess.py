"""The assessment of one window: all possible checks, in the order of their weight, and the worst as the reason."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import first_of
from models.judge.comparison import horizon_estimates
from models.judge.verdict import Estimate
from models.metrics.metrics import Metric
from models.metrics.outputs import Output
from models.monitoring.cbpe import expected_metric
from models.monitoring.contract import breaches
from models.monitoring.coverage import coverage_of
from models.monitoring.drift import comparable, feature_drift, score_drift
from models.monitoring.performance import HORIZON_TESTS, POOLED, RESAMPLES, PooledMetric, of_dependent, pooled, realised
from models.monitoring.reference import Reference
from models.monitoring.report import HorizonReport, MonitoringReport, State, WindowReport
from models.monitoring.tally import Bounds, PredictionCounts
from models.project_spec.monitor_and_retrain import Monitor

ALL_WELL = "nothing unusual"


@dataclass(frozen=True)
class AssessmentRules:
    """The values that the windows of one version are assessed against.

    Attributes:
        version: The registered version.
        reference: None for a version from before references existed: then only labels can show a problem.
        metric: The metric of the goal.
        promoted: The metric at the version's promotion, on test rows.
        bounds: Allowed ranges of numeric columns.
        promoted_confidence: The confidence of the interval of `promoted`.
        outputs: The outputs of a row, if there are several.
        promoted_horizons: `promoted` at each of several horizons, by output.
        num_dependent: Number of the test examples behind `promoted` if they depend on each other, else None.
        shows_values: The spec's `data.show_rows`.
    """

    version: str
    monitor: Monitor
    metric: Metric
    reference: Reference | None = None
    promoted: Estimate | None = None
    bounds: Bounds | None = None
    promoted_confidence: float = 0.95
    outputs: Sequence[Output] = ()
    promoted_horizons: Mapping[str, Estimate] = field(default_factory=dict)
    num_dependent: int | None = None
    shows_values: bool = True


@dataclass(frozen=True)
class WindowPredictions:
    """The predictions of one window.

    Attributes:
        first: Number of the version's predictions before this window.
        begin, end: Unix time of the first and the last prediction, seconds.
        tally: Their counts.
        whole: False while the window fills.
        num_labels: Predictions whose label is known.
        target, prediction: Of the labelled predictions that are stored one by one; target in the form for metrics.
        scores: Predictions for the estimated metric, with and without label.
    """

    first: int
    begin: float
    end: float
    tally: PredictionCounts
    whole: bool
    num_labels: int
    target: NDArray[Any]
    prediction: NDArray[np.float64]
    scores: NDArray[np.float64]


def assess(predicted: WindowPredictions, watched: AssessmentRules, past: Sequence[WindowReport] = ()) -> WindowReport:
    """Return the report of a window in its present state. Pure: the same arguments give the same report.

    Args:
        predicted: Its predictions.
        watched: The values to assess it against.
        past: The version's windows before it, oldest first.
    """
    reference, monitor = watched.reference, watched.monitor
    before = comparable(past, predicted.begin, predicted.tally.num_rows, monitor)
    measured = realised(watched.metric, predicted.target, predicted.prediction, monitor)
    measured = measured and _of_dependent(measured, watched.promoted, predicted, watched)
    coverage = coverage_of(predicted.target, predicted.prediction, watched.outputs) if measured else None
    window = WindowReport(
        id=f"{watched.version}/{predicted.first}",
        version=watched.version,
        begin=predicted.begin,
        end=predicted.end,
        num_predictions=predicted.tally.num_rows,
        num_labels=predicted.num_labels,
        whole=predicted.whole,
        breaches=breaches(
            predicted.tally, reference.columns, monitor, watched.bounds or {}, shows_values=watched.shows_values
        )
        if reference
        else [],
        realised=measured,
        num_measured=len(predicted.target) if measured else 0,
        horizons=_horizons(predicted, watched) if measured else [],
        coverage=coverage,
        miscovered=coverage is not None
        and reference is not None
        and reference.coverage is not None
        and coverage.has_changed(reference.coverage),
        estimated=_estimated(predicted, watched),
        predictions=score_drift(predicted.tally, reference.scores, monitor, before) if reference else [],
        features=feature_drift(predicted.tally, reference.columns, monitor, before) if reference else [],
        state="green",
        reason=ALL_WELL,
    )
    return with_decay(window, watched, past)


def with_decay(window: WindowReport, watched: AssessmentRules, past: Sequence[WindowReport]) -> WindowReport:
    """Return the report with the test of decay over it and the windows in `past` (oldest first), and with its state."""
    pool = None
    if window.realised is not None:
        before = (
            (window_before.realised, window_before.num_measured)
            for window_before in reversed(past)
            if window_before.realised and window_before.whole
        )
        pool = _pooled(watched, (window.realised, window.num_measured), before, watched.promoted)
    window = window.model_copy(
        update={
            "pooled": pool.estimate if pool else None,
            "num_pooled": pool.num_windows if pool else 0,
            "decayed": pool is not None and pool.decayed,
            "horizons": _with_decay_of_each(window, watched, past),
        }
    )
    state, reason = state_of(window)
    return window.model_copy(update={"state": state, "reason": reason})


def _horizons(predicted: WindowPredictions, watched: AssessmentRules) -> list[HorizonReport]:
    """Return the metric at each of several horizons, without the test of decay."""
    estimates = horizon_estimates(
        watched.metric,
        watched.outputs,
        predicted.target,
        predicted.prediction,
        watched.monitor.confidence,
        RESAMPLES,
    )
    return [
        HorizonReport(
            name=name, realised=_of_dependent(estimate, watched.promoted_horizons.get(name), predicted, watched)
        )
        for name, estimate in estimates.items()
        if estimate.value is not None
    ]


def _of_dependent(
    estimate: Estimate, promoted: Estimate | None, predicted: WindowPredictions, watched: AssessmentRules
) -> Estimate:
    rules, confidence = watched.monitor, watched.promoted_confidence
    num, num_dependent = len(predicted.target), watched.num_dependent
    return of_dependent(estimate, num, promoted, num_dependent, rules.confidence, confidence)


def _with_decay_of_each(
    window: WindowReport, watched: AssessmentRules, past: Sequence[WindowReport]
) -> list[HorizonReport]:
    """Return the horizons of a window with their tests of decay: one may decay while the mean of all does not."""
    reports = []
    for horizon in window.horizons:
        before = (
            (old.realised, report.num_measured)
            for report in reversed(past)
            if report.whole
            for old in report.horizons
            if old.name == horizon.name
        )
        now, promoted = (horizon.realised, window.num_measured), watched.promoted_horizons.get(horizon.name)
        pool = _pooled(watched, now, before, promoted, HORIZON_TESTS * len(window.horizons))
        update = {"pooled": pool.estimate if pool else None, "decayed": pool is not None and pool.decayed}
        reports.append(horizon.model_copy(update=update))
    return reports


def _pooled(
    watched: AssessmentRules,
    now: tuple[Estimate, int],
    before: Iterable[tuple[Estimate, int]],
    promoted: Estimate | None,
    num_tests: int = 1,
) -> PooledMetric | None:
    """Test the newest window and those before it, newest first, of which only as many are read as are pooled."""
    measured = [now, *itertools.islice(before, POOLED - 1)][::-1]
    rules, confidence = watched.monitor, watched.promoted_confidence
    return pooled(watched.metric, measured, promoted, rules, confidence, num_tests, watched.num_dependent)


def state_of(window: WindowReport) -> tuple[State, str]:
    """Return the state and the reason of a single window: those of its worst check."""
    if window.breaches:
        return "red", "; ".join(breach.reason for breach in window.breaches[:3])
    if window.decayed:
        return "red", "the realised metric is worse than at promotion"
    if window.decayed_horizons:
        names = first_of((horizon.name for horizon in window.decayed_horizons), 3, ", ")
        return "red", f"the realised metric of {names} is worse than at promotion"
    if window.miscovered and window.coverage is not None:
        share, intended = window.coverage.share, window.coverage.intended
        return "amber", f"{share:.0%} of the true values lie in the predicted interval, which is of {intended:.0%}"
    for drifts, words in ((window.predictions, "the predictions drift"), (window.features, "features drift")):
        notable = [drift for drift in drifts if drift.level != "none"]
        if notable:
            names = first_of((f"{drift.name} (PSI {drift.psi:.2f})" for drift in notable), 3, ", ")
            return "amber", f"{words}: {names}"
    return "green", ALL_WELL


def _estimated(predicted: WindowPredictions, watched: AssessmentRules) -> float | None:
    calibration = watched.reference.calibration if watched.reference else None
    if calibration is None or not len(predicted.scores):
        return None
    value = expected_metric(watched.metric, predicted.scores, calibration)
    return value if math.isfinite(value) else None


def sum_up(
    project: str, moment: float, windows: Sequence[WindowReport], watched: AssessmentRules | None, **counts: Any
) -> MonitoringReport:
    """Return the report of all windows, with the overall state and its reason."""
    from models.monitoring.alarms import overall

    report = MonitoringReport(
        project=project,
        at=moment,
        champion=watched.version if watched else None,
        metric=watched.metric.name if watched else None,
        direction=watched.metric.direction if watched else None,
        verdict=watched.promoted if watched else None,
        horizons=dict(watched.promoted_horizons) if watched else {},
        windows=list(windows),
        **counts,
    )
    if watched is None:
        return report.model_copy(update={"state": "amber", "reason": "there is no champion to monitor"})
    state, reason = overall(report, watched.monitor)
    return report.model_copy(update={"state": state, "reason": reason})
