"""Models of one period are resampled alike; neighbours in a series are drawn together."""

from __future__ import annotations

import numpy as np
import pytest

from models.backtest.score import RESAMPLES, score
from models.data.preparation import Preparation, TargetEncoding
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Window

TABLE = Preparation(kind="table", task="binary", target=TargetEncoding(name="y", classes=["no", "yes"]))
SERIES = Preparation(
    kind="series", task="regression", target=TargetEncoding(name="y"), window=Window(length=4, horizon=25)
)


def test_every_model_meets_the_same_resamples():
    random = np.random.default_rng(0)
    target, guess = random.integers(0, 2, 300), random.random(300)
    one, two = (score(METRICS["roc_auc"], target, prediction, TABLE) for prediction in (guess, guess * 0.5))
    assert one.drawn.shape == (RESAMPLES,)
    assert np.array_equal(one.drawn, two.drawn), "ranks alone decide roc_auc"
    assert (one.value, one.num_rows) == (pytest.approx(METRICS["roc_auc"].value(target, guess)), 300)


def test_errors_that_hang_together_make_a_series_less_sure():
    random = np.random.default_rng(0)
    error = np.repeat(random.normal(size=20), 25)
    plain = SERIES.model_copy(update={"window": None})
    together, apart = (score(METRICS["mae"], np.zeros(500), error, each).drawn.std() for each in (SERIES, plain))
    assert together > 2 * apart


def test_a_single_class_leaves_the_metric_undefined():
    found = score(METRICS["roc_auc"], np.ones(50, dtype=np.int64), np.linspace(0, 1, 50), TABLE)
    assert np.isnan(found.value)
    assert np.isnan(found.drawn).all()
