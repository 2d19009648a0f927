"""Judges one window: runs every check that is possible, most important first; the worst is the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.judge.verdict import Estimate
from models.metrics.metrics import Metric
from models.monitoring.cbpe import expected_metric
from models.monitoring.contract import breaches
from models.monitoring.correlation import changes
from models.monitoring.drift import comparable, feature_drift, score_drift
from models.monitoring.performance import is_decayed, realised
from models.monitoring.reference import Reference
from models.monitoring.report import Correlation, Drift, MonitoringReport, State, WindowReport
from models.monitoring.tally import Bounds, PredictionCounts
from models.project_spec.monitor_and_retrain import Monitor

ALL_WELL = "nothing unusual"


@dataclass(frozen=True)
class AssessmentRules:
    """The rules by which the windows of one version are judged.

    Attributes:
        version: The registered version.
        reference: None for a version made before there were references: then labels alone tell.
        metric: The goal's.
        promoted: The metric at its promotion, on test rows.
        bounds: What values of numeric columns may be.
    """

    version: str
    monitor: Monitor
    metric: Metric
    reference: Reference | None = None
    promoted: Estimate | None = None
    bounds: Bounds | None = None


@dataclass(frozen=True)
class WindowPredictions:
    """The predictions of one window.

    Attributes:
        first: How many predictions of the version came before.
        begin, end: Unix time of the first and the last, seconds.
        tally: Their counts.
        whole: False while the window fills.
        num_labels: Predictions whose label is known.
        target, prediction: Of the labelled ones that are measured; target as metrics take it.
        scores: Predictions that the estimate is taken of, labelled or not.
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
    """The window as it is known now. Pure: the same given, the same found.

    Args:
        predicted: Its predictions.
        watched: What it is judged by.
        past: The version's windows before it, oldest first.
    """
    reference, monitor = watched.reference, watched.monitor
    before = comparable(past, predicted.tally.num_rows, monitor)
    measured = realised(watched.metric, predicted.target, predicted.prediction, monitor)
    window = WindowReport(
        id=f"{watched.version}/{predicted.first}",
        version=watched.version,
        begin=predicted.begin,
        end=predicted.end,
        num_predictions=predicted.tally.num_rows,
        num_labels=predicted.num_labels,
        whole=predicted.whole,
        breaches=breaches(predicted.tally, reference.columns, monitor, watched.bounds or {}) if reference else [],
        realised=measured,
        num_measured=len(predicted.target) if measured else 0,
        decayed=is_decayed(watched.metric, measured, watched.promoted, monitor.margin),
        estimated=_estimated(predicted, watched),
        predictions=score_drift(predicted.tally, reference.scores, monitor, before) if reference else [],
        features=feature_drift(predicted.tally, reference.columns, monitor, before) if reference else [],
        correlations=_correlations(predicted.tally, reference, monitor) if reference else [],
        state="green",
        reason=ALL_WELL,
    )
    state, reason = state_of(window)
    return window.model_copy(update={"state": state, "reason": reason})


def state_of(window: WindowReport) -> tuple[State, str]:
    """Traffic light and words of one window by itself: the worst check that speaks."""
    if window.breaches:
        return "red", "; ".join(breach.reason for breach in window.breaches[:3])
    if window.decayed:
        return "red", "the realised metric is worse than at promotion"
    for drifts, words in ((window.predictions, "the predictions drift"), (window.features, "features drift")):
        notable = [drift for drift in drifts if drift.level != "none"]
        if notable:
            return "amber", f"{words}: {_drifts(notable)}"
    changed = [one for one in window.correlations if one.changed]
    if changed:
        return "amber", f"columns hang together otherwise: {_correlation(changed[0])}"
    return "green", ALL_WELL


def _drifts(drifts: Sequence[Drift]) -> str:
    names = ", ".join(f"{drift.name} (PSI {drift.psi:.2f})" for drift in drifts[:3])
    return names + (f" and {len(drifts) - 3} more" if len(drifts) > 3 else "")


def _correlation(one: Correlation) -> str:
    return f"{one.first} and {one.second}, rank correlation {one.reference:.2f} in training, now {one.now:.2f}"


def _estimated(predicted: WindowPredictions, watched: AssessmentRules) -> float | None:
    calibration = watched.reference.calibration if watched.reference else None
    if calibration is None or not len(predicted.scores):
        return None
    value = expected_metric(watched.metric, predicted.scores, calibration)
    return value if math.isfinite(value) else None


def _correlations(now: PredictionCounts, reference: Reference, monitor: Monitor) -> list[Correlation]:
    if now.gram is None or not reference.gram:
        return []
    names = [column.name for column in reference.correlated]
    return changes(np.asarray(reference.gram), now.gram, names, monitor.alpha)


def sum_up(
    project: str, at: float, windows: Sequence[WindowReport], watched: AssessmentRules | None, **counts: Any
) -> MonitoringReport:
    """All windows, the traffic light over them and its reason."""
    from models.monitoring.alarms import overall

    report = MonitoringReport(
        project=project,
        at=at,
        champion=watched.version if watched else None,
        metric=watched.metric.name if watched else None,
        direction=watched.metric.direction if watched else None,
        verdict=watched.promoted if watched else None,
        windows=list(windows),
        **counts,
    )
    if watched is None:
        return report.model_copy(update={"state": "amber", "reason": "there is no champion to monitor"})
    state, reason = overall(report, watched.monitor)
    return report.model_copy(update={"state": state, "reason": reason})
