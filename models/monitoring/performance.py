"""The realised performance of a window: the project's metric on labelled predictions, with its interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.judge.comparison import resample_models
from models.judge.verdict import Estimate
from models.metrics.metrics import Metric
from models.project_spec.monitor_and_retrain import Monitor

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

    Args:
        metric: The project's.
        target: Class indices or numbers (example,).
        prediction: Predictions in the form for metrics.
        monitor: The minimum number of labels, and the confidence of the interval.
        seed: The same seed gives the same interval.

    Cost: 400 times the metric.
    """
    if len(target) < monitor.min_labels:
        return None
    estimate = resample_models(metric, target, {"now": prediction}, RESAMPLES, seed).estimate("now", monitor.confidence)
    return estimate if estimate.value is not None else None


def is_decayed(metric: Metric, now: Estimate | None, promoted: Estimate | None, margin: float) -> bool:
    """Return True if the whole interval is worse than the whole interval at promotion, by more than a margin.

    For two equal models the 95 % intervals are apart in about 5 of 1,000 windows, and hardly ever in two successive
    windows.

    Source: Schenker and Gentleman (2001), The American Statistician 55, on intervals that do not overlap.
    """
    if now is None or promoted is None:
        return False
    if metric.direction == "maximize":
        best, least = now.high, _or(promoted.low, promoted.value)
        return best is not None and least is not None and best < least - margin
    best, most = now.low, _or(promoted.high, promoted.value)
    return best is not None and most is not None and best > most + margin


def _or(end: float | None, value: float | None) -> float | None:
    return value if end is None else end
