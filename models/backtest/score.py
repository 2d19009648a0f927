"""The score of a model in a period: its metric, plain and on resamples that are the same for every model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.data.preparation import Preparation
from models.metrics.bootstrap import resample, time_blocks
from models.metrics.metrics import Array, Metric

RESAMPLES = 400


@dataclass(frozen=True)
class Score:
    """The metric of one model in one period: plain, and on resamples of the period's rows (resample,).

    The resamples of a period are the same for every model.
    """

    value: float
    drawn: Array
    num_rows: int


def score(metric: Metric, target: Array, prediction: Array, preparation: Preparation, seed: int = 0) -> Score:
    """Return the metric on a period's rows, plain and resampled; adjacent rows of a series are drawn together."""
    num = len(target)
    clusters = None
    if preparation.window is not None:
        clusters = time_blocks(num, max(preparation.window.horizon, round(num ** (1 / 3))))
    each = metric.evaluator(target, prediction)
    drawn = resample([each], num, RESAMPLES, seed, clusters)[:, 0]
    return Score(each(np.ones(num)), drawn, num)
