"""Metrics of numbers against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from models.metrics.metrics import METRICS
from models.metrics.regression import sample_quantiles

CLOSE = {"rel": 1e-9, "abs": 1e-9}


def value(name, target, prediction, weight):
    return METRICS[name].value(target, prediction, weight)


@given(st.integers(0, 2**32), st.integers(3, 60), st.booleans())
@settings(max_examples=40)
def test_regression_metrics_equal_scikit_learn(seed, num, weighted):
    rng = np.random.default_rng(seed)
    target, prediction = rng.normal(3, 1, num) + 10, rng.normal(3, 1, num) + 10
    weight = rng.random(num) + 0.01 if weighted else None
    expected = {
        "mae": sk.mean_absolute_error(target, prediction, sample_weight=weight),
        "rmse": sk.root_mean_squared_error(target, prediction, sample_weight=weight),
        "r2": sk.r2_score(target, prediction, sample_weight=weight),
        "mape": sk.mean_absolute_percentage_error(target, prediction, sample_weight=weight),
    }
    for name, reference in expected.items():
        assert value(name, target, prediction, weight) == pytest.approx(reference, **CLOSE), name


def test_constant_target_and_zero_target_are_undefined_for_r2_and_mape():
    assert math.isnan(value("r2", np.ones(4), np.arange(4.0), None))
    assert math.isnan(value("mape", np.array([0.0, 1.0]), np.ones(2), None))
    assert value("mape", np.array([0.0, 1.0]), np.array([5.0, 2.0]), np.array([0.0, 1.0])) == 1.0


@pytest.mark.parametrize("constant", [0.0, 5.0, 9.99, 0.1 + 0.2])
def test_r2_of_a_constant_is_undefined_however_its_mean_is_rounded(constant: float):
    target, prediction = np.full(200, constant), np.linspace(constant - 1, constant + 1, 200)
    assert math.isnan(value("r2", target, prediction, None))
    target[7] = 99.0
    weight = np.ones(200)
    weight[7] = 0
    assert math.isnan(value("r2", target, prediction, weight))


def test_a_further_value_lies_below_the_quantiles_of_a_small_sample_as_often_as_they_say():
    """20,000 samples of 9 values: a standard error of .0035 at most; numpy's type 7 has a share of .18 for .1."""
    values = np.random.default_rng(5).normal(size=(10, 20_000))
    levels = [0.1, 0.5, 0.8]
    quantiles = sample_quantiles(values[:9], levels).reshape(-1, len(levels))
    assert (values[9][:, None] < quantiles).mean(axis=0) == pytest.approx(levels, abs=0.012)
    assert sample_quantiles(np.array([4.0, 2.0, 3.0]), 0.5).tolist() == [3.0]


def test_a_value_of_weight_two_counts_as_two_values_in_quantiles():
    rng = np.random.default_rng(1)
    values, weight, levels = rng.normal(size=(30, 2)), rng.integers(0, 4, 30), [0.01, 0.3, 0.5, 0.95]
    expected = sample_quantiles(np.repeat(values, weight, axis=0), levels)
    np.testing.assert_allclose(sample_quantiles(values, levels, weight.astype(np.float64)), expected, atol=1e-12)
    np.testing.assert_allclose(
        sample_quantiles(values, levels, np.ones(30)), sample_quantiles(values, levels), atol=1e-12
    )
