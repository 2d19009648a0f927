"""Drift detection: are columns and scores distributed as in training?

A column drifts when the G test is significant at `monitor.alpha` after Holm's correction *and* PSI is at least
`monitor.psi`. With many rows the test alone reports every small difference; with few rows PSI alone reports noise.
Both PSI limits rise to the 99th percentile of the PSI of past windows of the same length that did not alarm, so a
lasting shift stays reported and a repaired incident hides no later one. Only a person (`monitor.accepted`) or a
promotion, which has a reference of its own, accepts a shift.

Source: rules compared on 13 features of real flights, windows of 1,000 rows, alarm if any feature drifts: this rule has
.00 false alarms and .90 power at a shift of .25 standard deviations (docs/how-to/monitoring.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.metrics.holm import holm
from models.monitoring import distances
from models.monitoring.histogram import Bins, Counts, NumericBins
from models.monitoring.reference import ReferenceColumn
from models.monitoring.report import Drift, Level, WindowReport
from models.monitoring.tally import INPUT, SCORE, PredictionCounts
from models.project_spec.monitor_and_retrain import Monitor

FEWEST_PAST = 20
"""With fewer past windows the spec's limits apply: a 99th percentile of fewer values is just their maximum."""
PERCENTILE = 0.99
SAME_LENGTH = 1.5


@dataclass(frozen=True)
class PastDrift:
    """The drift of the comparable windows before a window, oldest first; `accepted` is a time that lies before it."""

    windows: Sequence[WindowReport] = ()
    accepted: float | None = None

    def usual(self, name: str, among: Literal["features", "predictions"], monitor: Monitor) -> float:
        """Return the PSI of a column that is usual: 0 if too few windows show what is.

        The last `monitor.of` windows are left out, because a drift must not raise the limit that detects it; also
        windows of an alarm, those that drift strongly, and each that drifts after an alarm that nobody accepted.
        """
        pairs = [(window, drift) for window in self.windows for drift in getattr(window, among) if drift.name == name]
        drifts = [drift for _, drift in pairs]
        num_accepted = 0 if self.accepted is None else sum(window.end <= self.accepted for window, _ in pairs)
        quiet = [drift.psi for drift in _without_alarms(drifts, monitor, num_accepted) if drift.psi is not None]
        learnt = float(np.quantile(quiet, PERCENTILE)) if len(quiet) >= FEWEST_PAST else 0.0
        if self.accepted is None:
            return learnt
        before = [drift for window, drift in pairs if window.end <= self.accepted]
        episode = itertools.takewhile(lambda drift: drift.level != "none", reversed(before))
        return max([learnt, *(float(drift.psi) for drift in episode if drift.psi is not None)])


def _without_alarms(drifts: Sequence[Drift], monitor: Monitor, num_accepted: int) -> Iterator[Drift]:
    """Yield the drifts that limits are learnt from.

    A window that drifted alone is odd and counts, unless an alarm came before it that nobody accepted: then it may be
    of a lasting shift so small that not every window shows it.
    """
    drifted = [drift.level != "none" for drift in drifts]
    is_alarm = [sum(drifted[start : start + monitor.of]) >= monitor.alarms for start in range(len(drifts))]
    has_alarmed = False
    for place, drift in enumerate(drifts[: len(drifts) - monitor.of] if len(drifts) > monitor.of else []):
        has_alarmed |= is_alarm[place] and place >= num_accepted
        is_of_alarm = any(is_alarm[max(0, place - monitor.of + 1) : place + 1])
        if not (drifted[place] and (is_of_alarm or has_alarmed)) and drift.level != "strong":
            yield drift


def feature_drift(
    now: PredictionCounts, columns: Sequence[ReferenceColumn], monitor: Monitor, past: PastDrift = PastDrift()
) -> list[Drift]:
    """Return the drift of a window's columns, largest drift first.

    Args:
        now: The window's counts.
        columns: Columns of the reference.
        monitor: The spec's limits; columns in `monitor.seasonal` are shown and never count as drift.
        past: Windows before it.
    """
    usual = {name: past.usual(name, "features", monitor) for name in _names(columns)}
    drifts = _table(now, INPUT, columns, monitor, usual)
    return sorted(drifts, key=lambda drift: (drift.level == "none", -(drift.psi or 0.0)))


def score_drift(
    now: PredictionCounts, scores: Sequence[ReferenceColumn], monitor: Monitor, past: PastDrift = PastDrift()
) -> list[Drift]:
    """Return the drift of a window's predictions: the score, or for many classes the top class and its probability."""
    usual = {name: past.usual(name, "predictions", monitor) for name in _names(scores)}
    return _table(now, SCORE, scores, monitor, usual)


def comparable(past: Iterable[WindowReport], begin: float, num_rows: int, monitor: Monitor) -> PastDrift:
    """Return the windows before one that begins at `begin`, as far as their noise is comparable: complete, as long."""
    same = [
        window
        for window in past
        if window.whole and num_rows / SAME_LENGTH <= window.num_predictions <= num_rows * SAME_LENGTH
    ]
    accepted = monitor.accepted_at
    return PastDrift(same, accepted if accepted is not None and accepted <= begin else None)


def _table(
    now: PredictionCounts,
    prefix: str,
    columns: Sequence[ReferenceColumn],
    monitor: Monitor,
    usual: dict[str, float],
) -> list[Drift]:
    counted = [column for column in columns if prefix + column.name in now.counts]
    measured = [_measure(column, now.counts[prefix + column.name]) for column in counted]
    corrected = holm([drift.p_value for drift in measured])
    return [_judged(*pair, monitor, usual[pair[0].name]) for pair in zip(measured, corrected, strict=True)]


def _measure(column: ReferenceColumn, now: Counts) -> Drift:
    bins, reference = column.bins, column.counts
    before, after = bins.values_of(reference), bins.values_of(now)
    num_values, missing = int(after.sum()), bins.num_missing(now)
    drift = Drift(
        name=column.name,
        kind=bins.kind,
        num_values=num_values,
        nulls=missing / max(1, num_values + missing),
        nulls_reference=column.nulls,
        outside=bins.num_outside(now) / max(1, num_values),
        warn_at=0.0,
        strong_at=0.0,
    )
    return drift.model_copy(update=_distances(bins, before, after)) if num_values and before.sum() else drift


def _distances(bins: Bins, before: Counts, after: Counts) -> dict[str, object]:
    numeric = isinstance(bins, NumericBins)
    groups = distances.group_numeric(before) if numeric else distances.group_categorical(before)
    few, few_now = distances.grouped(before, groups), distances.grouped(after, groups)
    statistic, p_value = distances.g_test(few, few_now)
    measures: dict[str, object] = {
        "psi": distances.psi(few, few_now),
        "jensen_shannon": distances.jensen_shannon(few, few_now),
        "g": statistic,
        "p_value": p_value,
    }
    if isinstance(bins, NumericBins):
        measures["ks"] = distances.kolmogorov_smirnov(before, after)
        moved = distances.wasserstein(before, after, bins.edges, bins.low, bins.high)
        measures["wasserstein"] = moved / bins.spread if bins.spread else 0.0
    return measures


def _judged(drift: Drift, p_holm: float | None, monitor: Monitor, usual: float) -> Drift:
    warn_at, strong_at = max(monitor.psi, usual), max(monitor.psi_strong, usual)
    seasonal = drift.name in monitor.seasonal
    level: Level = "none"
    if not seasonal and drift.psi is not None and p_holm is not None and p_holm < monitor.alpha:
        level = "strong" if drift.psi >= strong_at else "warn" if drift.psi >= warn_at else "none"
    judgement = {"p_holm": p_holm, "warn_at": warn_at, "strong_at": strong_at, "level": level, "seasonal": seasonal}
    return drift.model_copy(update=judgement)


def _names(columns: Iterable[ReferenceColumn]) -> list[str]:
    return [column.name for column in columns]
