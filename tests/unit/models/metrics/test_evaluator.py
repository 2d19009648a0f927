"""An evaluator gives for weights what the metric gives for examples that are repeated as often."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from models.data.target_encoding import OutputColumn
from models.metrics.evaluator import weighted_mean
from models.metrics.metrics import METRICS, metrics_for
from tests.wide import examples


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "language"])
@given(seed=st.integers(0, 2**32), num=st.integers(1, 40), digits=st.integers(1, 6))
@examples(40)
def test_a_weight_counts_an_example_as_often_in_every_metric(task, seed, num, digits):
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, num).astype(float)
    weight[0] = 1.0
    if task == "regression":
        target, prediction = rng.normal(5, 1, num), rng.normal(5, 1, num)
    elif task == "binary":
        target, prediction = rng.integers(0, 2, num), np.round(rng.random(num), digits)
    elif task == "multiclass":
        target, prediction = rng.integers(0, 4, num), np.round(rng.dirichlet(np.ones(4), num), digits)
    else:
        target, prediction = np.zeros((num, 5)), rng.gamma(2, 1, (num, 5))
    index = np.repeat(np.arange(num), weight.astype(int))
    for metric in metrics_for(task):
        repeated = metric.value(target[index], prediction[index])
        evaluated = metric.evaluator(target, prediction)
        for _ in range(2):  # the second time as the first
            assert evaluated(weight) == pytest.approx(repeated, rel=1e-9, abs=1e-12, nan_ok=True), metric.name


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_no_example_at_all_is_undefined(metric):
    empty, target = np.zeros((0, 3)) if metric.tasks == ("language",) else np.zeros(0), np.zeros(0, dtype=int)
    if metric.is_of_groups:
        target = np.zeros((0, 2))
    if metric.tasks in (("multilabel",), ("quantile",)):
        outputs = [OutputColumn(name="q0.5", column="y", quantile=0.5)]
        empty, target, metric = np.zeros((0, 1)), np.zeros((0, 1)), metric.of(outputs)
    assert math.isnan(metric.value(target, empty))


def test_the_mean_is_the_same_to_the_bit_with_any_number_of_threads():
    values = np.random.default_rng(0).random(500_000)
    means = set()
    for threads in (1, 2):
        with threadpool_limits(threads):
            means.add(weighted_mean(values)(np.ones(500_000)))
    assert len(means) == 1
    assert means.pop() == pytest.approx(values.mean(), rel=1e-12)
