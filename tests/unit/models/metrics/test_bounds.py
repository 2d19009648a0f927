"""The exact interval of a metric at its bound, and the examples that it rests on."""

import numpy as np
import pytest
from scipy.stats import binomtest

from models.metrics.bounds import RANGES, exact_reach, least_units, never_vary, varies
from models.metrics.metrics import METRICS

TARGET = np.array([1] * 4 + [0] * 16)
PREDICTION = np.where(np.arange(20) < 6, 0.9, 0.1)


def units(name, clusters=None, weights=None):
    return least_units(RANGES[name].terms(TARGET, PREDICTION), clusters, weights)


@pytest.mark.parametrize("num", [1, 30, 86, 5000])
def test_the_reach_is_that_of_clopper_and_pearson(num):
    assert 1 - exact_reach(num, 0.95) == pytest.approx(binomtest(num, num).proportion_ci(0.95, "exact").low)


def test_eighty_six_of_eighty_six_show_no_more_than_958():
    assert RANGES["accuracy"].interval(1.0, 86, 0.95) == pytest.approx((0.958, 1.0), abs=1e-3)
    assert RANGES["accuracy"].interval(0.0, 86, 0.95) == pytest.approx((0.0, 0.042), abs=1e-3)
    assert RANGES["recall"].interval(0.0, 0, 0.95) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "num"),
    [("accuracy", 20), ("recall", 4), ("precision", 6), ("f1", 6), ("roc_auc", 4), ("balanced_accuracy", 4)],
)
def test_a_metric_rests_on_the_examples_of_its_smallest_term(name, num):
    assert units(name) == num


def test_clusters_and_weights_count_by_their_effective_number():
    assert units("accuracy", clusters=np.arange(20) // 4) == pytest.approx(5)
    assert units("accuracy", weights=np.where(np.arange(20) < 10, 1.0, 0.0)) == pytest.approx(10)
    assert units("accuracy", weights=np.where(np.arange(20) < 10, 3.0, 1.0)) == pytest.approx(40**2 / 100)


def test_a_metric_at_another_threshold_rests_on_what_is_called_there():
    moved = METRICS["precision"].at(0.95)
    assert least_units(moved.range.terms(TARGET, PREDICTION), None, None) == 0


def test_a_constant_is_not_estimated_and_sums_in_another_order_do_not_vary():
    assert not varies(np.full(5, 0.3))
    assert varies(PREDICTION)
    assert never_vary(np.array([1.0, 1.0 - 1e-15, np.nan]))
    assert not never_vary(np.array([1.0, 0.99]))
    assert not never_vary(np.array([np.nan]))
