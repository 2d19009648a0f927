"""The trivial model that every challenger must beat."""

from pathlib import Path

import numpy as np
import pytest

from models.data.target_encoding import OutputColumn
from models.errors import DataError
from models.judge.baseline import naive_forecast, trivial_baseline
from models.metrics.classification import at_threshold
from models.metrics.metrics import METRICS, resolve_metric


def test_binary_share_of_the_positive_class():
    baseline = trivial_baseline("binary", np.array([0, 0, 1, 0]), np.zeros(3))
    assert baseline.prediction.tolist() == [0.25, 0.25, 0.25]
    assert "positive" in baseline.name


@pytest.mark.parametrize(("goal", "best"), [("cost_1_9", 0.8), ("cost_9_1", 0.2), ("f1", 1 / 3), ("accuracy", 0.8)])
def test_a_constant_decides_for_the_class_that_is_best_for_the_goal(goal, best):
    """A fifth of the rows is positive: where a missed one costs nine times as much, all are called positive."""
    target = np.tile([0, 0, 0, 0, 1], 20)
    baseline = trivial_baseline("binary", target, target, metric=goal)
    metric = resolve_metric(goal, "binary", Path())
    assert metric.value(target, at_threshold(baseline.prediction, baseline.threshold)) == pytest.approx(best)


def test_multiclass_shares_keep_classes_that_training_lacks():
    baseline = trivial_baseline("multiclass", np.array([0, 0, 2, 2, 2]), np.zeros(2), num_classes=4)
    assert baseline.prediction.tolist() == [[0.4, 0.0, 0.6, 0.0]] * 2


@pytest.mark.parametrize(("metric", "middle"), [("mae", 2.0), ("rmse", 34.0), ("r2", 34.0)])
def test_regression_takes_the_middle_that_suits_the_metric(metric, middle):
    train = np.array([0.0, 2.0, 100.0])
    baseline = trivial_baseline("regression", train, np.zeros(2), metric=metric)
    assert baseline.prediction.tolist() == [middle, middle]
    other = np.full(3, 36.0 - middle)
    function = METRICS[metric].value
    gain = function(train, np.full(3, middle)) - function(train, other)
    assert METRICS[metric].sign * gain > 0


def test_quantiles_of_few_training_targets_are_as_wide_as_those_of_models():
    """A constant from numpy's type 7 (18 to 82 here) would be an interval that holds too few further values."""
    train = np.arange(10.0, 100.0, 10.0)
    outputs = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]
    several = trivial_baseline("quantile", np.stack([train, train], axis=1), np.zeros(2), outputs=outputs)
    assert several.prediction.tolist() == [[10.0, 90.0]] * 2
    one = trivial_baseline("regression", train, np.zeros(2), metric="pinball_0.9")
    assert one.prediction == pytest.approx([90.0] * 2)


def test_no_training_target_is_an_error():
    with pytest.raises(DataError, match="empty"):
        trivial_baseline("binary", np.array([]), np.zeros(3))


def test_naive_forecast_repeats_the_value_of_a_season_ago():
    baseline = naive_forecast(np.arange(10.0), np.arange(10), np.array([7, 8, 9]), lag=7)
    assert baseline.prediction.tolist() == [0.0, 1.0, 2.0]
    assert baseline.name == "the value 7 steps earlier"
    with pytest.raises(DataError, match="an example has 6 steps before it, expected 7 or more"):
        naive_forecast(np.arange(10.0), np.arange(10), np.array([6]), lag=7)


def test_naive_forecast_carries_the_last_known_value_over_gaps():
    series = np.array([np.nan, np.nan, 2.0, np.nan, np.nan, 5.0, 6.0, 7.0])
    baseline = naive_forecast(series, np.arange(8), np.arange(2, 8), lag=2, middle=9.0)
    assert baseline.prediction.tolist() == [9.0, 9.0, 2.0, 2.0, 2.0, 5.0]


def test_naive_forecast_takes_no_value_of_another_series():
    series, steps = np.array([1.0, 2.0, 3.0, np.nan, np.nan, 6.0]), np.array([0, 1, 2, 0, 1, 2])
    assert naive_forecast(series, steps, np.array([2, 4, 5]), lag=1, middle=9.0).prediction.tolist() == [2.0, 9.0, 9.0]


def test_a_text_has_the_shares_of_the_training_characters():
    training = np.array([97, 97, 97, 98])
    baseline = trivial_baseline("language", training, np.array([[97, 98], [120, 97]]))
    assert baseline.name == "characters by their shares in the training text"
    assert 2**-baseline.prediction == pytest.approx(np.array([[4, 2], [1, 4]]) / 7), (
        "each counted once more, and others"
    )
    with pytest.raises(DataError, match="empty"):
        trivial_baseline("language", np.zeros(0, np.int64), np.array([[97]]))


def test_a_ranking_has_a_random_order():
    baseline = trivial_baseline("ranking", np.array([[0, 0], [2, 0]]), np.zeros(3))
    assert (baseline.name, baseline.prediction.tolist()) == ("a random order", [0.0, 0.0, 0.0])
