"""The monitoring page: traffic light, metric over time, drift of predictions and features, advice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from models.judge.gates import number
from models.judge.verdict import Estimate
from models.monitoring.alarms import signals
from models.monitoring.report import Drift, MonitoringReport, WindowReport
from models.project_spec.monitor_and_retrain import Monitor
from models.readable import readable
from models.report.card import Figure
from models.report.monitoring_figures import feature_map, metric_over_time, prediction_drift
from models.report.pages import render, show
from models.triggers.signal import clock

MOST_WINDOWS = 30
MOST_HORIZONS = 14
ADVICE = {
    "broken_data": "Look at what feeds the model now: a contract that breaks is a fault upstream far more often than "
    "news. Retraining on broken data would teach the fault.",
    "decay": "The model is worse than it was promoted for, by labels. Run another loop, and see whether the "
    "challenger wins its verdict; if it does not, new features or labels are needed.",
    "drift": "The model says other things than it did on its test rows. Look at the realised metric when labels come; "
    "until then at the features below.",
}


def render_monitoring(findings: MonitoringReport, monitor: Monitor) -> str:
    """Return the report as one self-contained HTML page: no script, no external resources."""
    windows = findings.of_champion()
    alarms = signals(findings, monitor)
    return render(
        "monitoring.html.j2",
        {"three": _three, "p_value": _p_value},
        findings=findings,
        monitor=monitor,
        when=clock(findings.at),
        facts=_facts(findings, windows),
        alarms=alarms,
        advice=[ADVICE[signal.kind] for signal in alarms if signal.kind in ADVICE],
        pictures=_pictures(findings, windows),
        last=windows[-1] if windows else None,
        shown=list(reversed(findings.windows[-MOST_WINDOWS:])),
        span=_span,
        lights=[(_light(drift), drift) for drift in windows[-1].features] if windows else [],
    )


def _facts(findings: MonitoringReport, windows: Sequence[WindowReport]) -> dict[str, object]:
    promoted, last = findings.verdict, next((window for window in reversed(windows) if window.realised), None)
    realised = last.realised if last else None
    coverage = findings.num_labels / findings.num_predictions if findings.num_predictions else None
    return {
        "champion": f"version {findings.champion}" if findings.champion else "none",
        "predictions": findings.num_predictions,
        "labels": f"{findings.num_labels:,} ({coverage:.1%} of the predictions)" if coverage is not None else None,
        "labels without prediction": findings.num_unknown_labels or None,
        f"{findings.metric or 'metric'} at promotion": _estimate(promoted),
        f"{findings.metric or 'metric'} realised, last window with labels": _estimate(realised),
        "by horizon, last window with labels": _by_horizon(findings, last) if last else None,
        "windows": f"{len(windows)} whole ones of the champion",
    }


def _pictures(findings: MonitoringReport, windows: Sequence[WindowReport]) -> list[Figure]:
    if not windows:
        return []
    metric = findings.metric or "metric"
    figures = [
        Figure(
            f"{metric} over time",
            "Realised by labels, with interval, as wide as the verdict's if rows depend on each other; dashed what is "
            "expected without labels; the band is the interval at promotion.",
            metric_over_time(windows, metric, findings.verdict),
        )
    ]
    if any(window.predictions for window in windows):
        caption = (
            "How far the scores of each window lie from those on the test rows. Above its limit a score drifts only if "
            "the window has enough rows to tell it from chance: a hollow mark is within chance."
        )
        figures.append(Figure("Drift of the predictions", caption, prediction_drift(windows)))
    if any(window.features for window in windows):
        caption = "Shown, never acted upon: real data drift all the time, and it hardly says that a model got worse."
        figures.append(Figure("Drift of the features", caption, feature_map(windows)))
    return figures


def _by_horizon(findings: MonitoringReport, window: WindowReport) -> str | None:
    """Return the metric at each horizon, and at promotion; None for other models."""
    parts = []
    for horizon in window.horizons[:MOST_HORIZONS]:
        then = findings.horizons.get(horizon.name)
        promoted = f" (promoted with {readable(then.value)})" if then and then.value is not None else ""
        decays = ", decays" if horizon.decayed else ""
        parts.append(f"{horizon.name} {number(horizon.realised.value)}{promoted}{decays}")
    num_further = len(window.horizons) - len(parts)
    return "; ".join([*parts, f"{num_further} more"] if num_further else parts) or None


def _light(drift: Drift) -> tuple[str, str]:
    """Return colour and words of a feature's row."""
    if drift.seasonal:
        return "quiet", "seasonal"
    if drift.psi is None:
        return "quiet", "no values"
    if drift.is_within_chance:
        return "quiet", drift.words
    return {"none": ("green", "✓ as trained"), "warn": ("amber", "! drifts"), "strong": ("red", "! drifts far")}[
        drift.level
    ]


def _estimate(estimate: Estimate | None) -> str | None:
    if estimate is None or estimate.value is None:
        return None
    ends = f" ({number(estimate.low)} to {number(estimate.high)})" if None not in (estimate.low, estimate.high) else ""
    return f"{readable(estimate.value)}{ends}"


def _span(window: WindowReport) -> str:
    begin, end = (datetime.fromtimestamp(timestamp, UTC) for timestamp in (window.begin, window.end))
    if begin.date() == end.date():
        return f"{begin:%d %b %Y, %H:%M} to {end:%H:%M}"
    return f"{begin:%d %b %Y} to {end:%d %b %Y}"


def _three(value: float | None) -> str:
    """Return a number with three decimals if it is below 100, else in the general form."""
    if value is None:
        return "–"
    return f"{value:.3f}" if abs(value) < 100 else str(show(value))


def _p_value(value: float | None) -> str:
    if value is None:
        return "–"
    return "< 0.0001" if value < 1e-4 else f"{value:.3g}"
