"""The rules by which monitoring results trigger a loop; pure functions that live monitoring and the backtest share.

Source: measured on 39 weeks of real flights (docs/how-to/monitoring.md): features drift all the time, and their drift
hardly shows that the model got worse, so drift of features never triggers a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from models.errors import first_of
from models.judge.gates import number
from models.judge.verdict import Estimate
from models.monitoring.report import HorizonReport, MonitoringReport, State, WindowReport
from models.project_spec.monitor_and_retrain import Monitor
from models.readable import readable
from models.triggers.signal import Kind, Signal


class _Check(NamedTuple):
    kind: Kind
    state: State
    can: Callable[[WindowReport], bool]
    """Whether the check applies to the window: without labels there is no realised metric."""
    alarms: Callable[[WindowReport], bool]
    words: Callable[[WindowReport, MonitoringReport], str]
    pools: bool = False
    """Whether the check itself looks at several windows."""


def signals(findings: MonitoringReport, monitor: Monitor) -> list[Signal]:
    """Return the signals of the champion's last windows, in order: broken contract, decay, drift of the predictions.

    A check gives a signal if `monitor.alarms` of the last `monitor.of` windows to which it applies alarm, including the
    last of these; decay, which pools windows itself, if the last does. The same windows give signals of the same id in
    every monitoring run.
    """
    alarms = []
    for check in _CHECKS:
        num_needed, num_last = (1, 1) if check.pools else (monitor.alarms, monitor.of)
        last = [window for window in findings.of_champion() if check.can(window)][-num_last:]
        alarming = [window for window in last if check.alarms(window)]
        if len(alarming) >= num_needed and alarming[-1] is last[-1]:
            alarms.append(_signal(findings, check, alarming, len(last)))
    return alarms


def overall(findings: MonitoringReport, monitor: Monitor) -> tuple[State, str]:
    """Return the state and its reason: of the worst signal, else of the champion's last window (amber at most)."""
    alarms = signals(findings, monitor)
    if alarms:
        states = {check.kind: check.state for check in _CHECKS}
        worst = min(alarms, key=lambda signal: states[signal.kind] != "red")
        return states[worst.kind], worst.reason
    windows = findings.of_champion()
    if not windows:
        return "green", _nothing_yet(findings)
    last = windows[-1]
    return ("green" if last.state == "green" else "amber"), last.reason


def _nothing_yet(findings: MonitoringReport) -> str:
    if findings.champion is None:
        return "there is no champion to monitor"
    count, labels = findings.num_predictions, findings.num_labels
    counted = f"{count:,} prediction{'s' * (count != 1)}" + (f", {labels:,} labelled," if labels else "")
    return f"version {findings.champion} has no whole window yet ({counted} so far)"


def _signal(findings: MonitoringReport, check: _Check, alarming: list[WindowReport], num_windows: int) -> Signal:
    last = alarming[-1]
    several = f"{len(alarming)} of the last {num_windows} windows: " if num_windows > 1 else ""
    return Signal(
        id=f"{findings.project}:{check.kind}:{last.id}",
        kind=check.kind,
        at=findings.at,
        reason=f"{several}{check.words(last, findings)}",
        evidence={
            "version": last.version,
            "windows": [window.id for window in alarming],
            "begin": alarming[0].begin,
            "end": last.end,
            **_numbers(findings, last),
        },
    )


def _numbers(findings: MonitoringReport, window: WindowReport) -> dict[str, object]:
    return {
        "metric": findings.metric,
        "verdict": findings.verdict.model_dump() if findings.verdict else None,
        "realised": window.realised.model_dump() if window.realised else None,
        "decayed_horizons": [horizon.name for horizon in window.decayed_horizons],
        "estimated": window.estimated,
        "breaches": [breach.model_dump() for breach in window.breaches],
        "predictions": [{"name": drift.name, "psi": drift.psi, "p_holm": drift.p_holm} for drift in window.predictions],
    }


def words_of_decay(window: WindowReport, findings: MonitoringReport) -> str:
    """Return the realised metric of the newest windows, and their version's metric at promotion, in one line."""
    if window.decayed_horizons and not window.decayed:
        return first_of((_of_horizon(horizon, findings) for horizon in window.decayed_horizons), 3)
    now, then = window.pooled or window.realised, findings.verdict
    assert now is not None
    over = (
        f"over the last {window.num_pooled} windows" if window.num_pooled > 1 else f"on {window.num_measured:,} labels"
    )
    return f"{findings.metric} {number(now.value)} ({_interval(now)}) {over}{_promoted(then)}"


def _of_horizon(horizon: HorizonReport, findings: MonitoringReport) -> str:
    now, then = horizon.pooled or horizon.realised, findings.horizons.get(horizon.name)
    return f"{findings.metric} of {horizon.name} {number(now.value)} ({_interval(now)}){_promoted(then)}"


def _promoted(then: Estimate | None) -> str:
    return f", promoted with {readable(then.value)} ({_interval(then)})" if then and then.value is not None else ""


def words_of_drift(window: WindowReport) -> str:
    """Return the drift of a window's predictions in one line."""
    drifted = [drift for drift in window.predictions if drift.level != "none"]
    return first_of(
        (f"the {drift.name} drifts (PSI {drift.psi:.2f}, from {drift.warn_at:.2f} on)" for drift in drifted), 3
    )


def _interval(estimate: Estimate) -> str:
    return (
        f"{readable(estimate.low)} to {readable(estimate.high)}"
        if estimate.low is not None and estimate.high is not None
        else "no interval"
    )


_CHECKS = (
    _Check(
        "broken_data",
        "red",
        lambda window: True,
        lambda window: bool(window.breaches),
        lambda window, _: first_of((breach.reason for breach in window.breaches), 3),
    ),
    _Check(
        "decay",
        "red",
        lambda window: window.realised is not None,
        lambda window: window.decayed or bool(window.decayed_horizons),
        words_of_decay,
        True,
    ),
    _Check(
        "drift",
        "amber",
        lambda window: bool(window.predictions),
        lambda window: window.drifted,
        lambda window, _: words_of_drift(window),
    ),
)
