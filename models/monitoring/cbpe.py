"""Confidence-based performance estimation (CBPE): the expected metric of a classifier without labels.

Each prediction is taken as every outcome at once, each with its calibrated chance as weight; the metric of these
weighted examples is what the labels would give if the chances are right. So it sees what changes the mix of easy and
hard cases, and is blind to a change of what the same inputs mean: it warns, and is never a gate. A regression states
no chances: there is none for it.

Source: Bialek et al. (2024), arXiv 2407.08649 (CBPE); measured on flights: mean error .034, of a constant .047.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.metrics.metrics import Metric
from models.monitoring.calibration import Calibration

Array = NDArray[np.float64]
DRAWS = 20


def expected_metric(metric: Metric, prediction: Array, calibration: Calibration, seed: int = 0) -> float:
    """The metric expected of predictions whose outcomes are not known; NaN where it is undefined.

    A metric of your own takes no weights: it is the mean over drawn outcomes.
    """
    chances = calibration.chances(prediction)
    if metric.own:
        return _drawn(metric, prediction, chances, seed)
    num_classes = chances.shape[1]
    target = np.tile(np.arange(num_classes), len(prediction))
    return float(metric.function(target, np.repeat(prediction, num_classes, axis=0), chances.ravel()))


def _drawn(metric: Metric, prediction: Array, chances: Array, seed: int) -> float:
    source = np.random.default_rng(seed)
    ladder = np.cumsum(chances, axis=1)
    last = chances.shape[1] - 1
    values = []
    for _ in range(DRAWS):
        target = np.minimum((ladder < source.random((len(ladder), 1))).sum(axis=1), last)
        values.append(metric.function(target, prediction))
    return float(np.mean(values))
