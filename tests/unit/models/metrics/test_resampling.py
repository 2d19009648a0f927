"""A metric made ready for resampling gives what the metric gives with those weights."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.metrics.metrics import metrics_for, resolve_metric
from models.metrics.resampling import evaluator


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@given(seed=st.integers(0, 2**32), num=st.integers(1, 40), digits=st.integers(1, 6))
@settings(max_examples=40)
def test_every_ready_metric_agrees_with_its_plain_form(task, seed, num, digits):
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, num).astype(float)
    weight[0] = 1.0
    if task == "regression":
        target, prediction = rng.normal(5, 1, num), rng.normal(5, 1, num)
    elif task == "binary":
        target, prediction = rng.integers(0, 2, num), np.round(rng.random(num), digits)
    else:
        target, prediction = rng.integers(0, 4, num), np.round(rng.dirichlet(np.ones(4), num), digits)
    for metric in metrics_for(task):
        expected = metric.function(target, prediction, weight)
        found = evaluator(metric, target, prediction)(weight)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), metric.name


def test_a_metric_of_your_own_that_raises_is_undefined_on_that_resample_alone(tmp_path):
    (tmp_path / "own.py").write_text(
        "def both(target, prediction):\n"
        "    if len(set(target.tolist())) < 2:\n        raise ValueError('one class')\n    return 0.5\n"
    )
    metric = resolve_metric("./own.py:both", "binary", tmp_path, "maximize")
    value = evaluator(metric, np.array([0, 1]), np.array([0.1, 0.9]))
    assert value(np.array([1.0, 1.0])) == 0.5
    assert math.isnan(value(np.array([2.0, 0.0])))
