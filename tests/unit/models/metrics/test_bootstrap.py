"""The paired bootstrap: same seed same draws, honest coverage, pairs and clusters respected."""

import numpy as np
import pytest

from models.errors import UsageError
from models.metrics.bootstrap import draws, p_value, percentile_interval, resample, time_blocks
from models.metrics.metrics import METRICS


def test_draws_are_the_same_for_ever():
    first, second = list(draws(6, 2, seed=1))
    assert first.tolist() == [2, 0, 1, 1, 1, 1]
    assert second.tolist() == [0, 2, 1, 0, 1, 2]


def test_each_resample_has_as_many_examples_and_all_are_drawn_alike():
    total = np.sum(list(draws(7, 4000, seed=3)), axis=0)
    assert {weight.sum() for weight in draws(7, 50)} == {7.0}
    assert total.sum() == 7 * 4000
    assert np.abs(total / 4000 - 1).max() < 0.06


def test_examples_of_one_cluster_are_drawn_together():
    clusters = np.array([0, 0, 1, 2, 2, 2])
    for weight in draws(6, 20, clusters=clusters):
        assert weight[0] == weight[1]
        assert weight[3] == weight[4] == weight[5]
    with pytest.raises(UsageError, match="got 6 entries, expected one for each of 5"):
        next(draws(5, 1, clusters=clusters))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        target = rng.normal(size=120)
        champion, challenger = target + rng.normal(0, 1.0, 120), target + rng.normal(0, 0.9, 120)
        models = [METRICS["mae"].evaluator(target, each) for each in (challenger, champion)]
        values = resample(models, 120, 200)
        low, high = percentile_interval(values[:, 0] - values[:, 1], 0.9)
        covered += low <= (0.9 - 1.0) * np.sqrt(2 / np.pi) <= high  # mean of |N(0, s)| is s * sqrt(2 / pi)
    assert 0.83 <= covered / 200 <= 0.96


def test_pairing_makes_the_difference_surer_than_either_value():
    rng = np.random.default_rng(1)
    target, shared = rng.normal(size=500), rng.normal(size=500)
    models = [METRICS["mae"].evaluator(target, target + shared + rng.normal(0, 0.1, 500)) for _ in range(2)]
    values = resample(models, 500, 300)
    assert np.std(values[:, 0] - values[:, 1]) < 0.3 * np.std(values[:, 0])


def test_blocks_of_time_widen_the_interval_of_errors_that_hang_together():
    errors = np.repeat(np.random.default_rng(2).normal(size=40), 25)
    model = METRICS["mae"].evaluator(np.zeros(1000), errors)
    alone = resample([model], 1000, 200)
    together = resample([model], 1000, 200, clusters=time_blocks(1000, 25))
    assert together.std() > 3 * alone.std()


def test_p_value_and_interval_say_the_same():
    gains = np.random.default_rng(3).normal(0.5, 0.25, 2000)
    for threshold in np.linspace(-0.5, 1.0, 61):
        low, _ = percentile_interval(gains, 0.95)
        if abs(low - threshold) > 0.01:
            assert (p_value(gains, threshold, at_threshold=True) < 0.05) == (low > threshold)


def test_equal_models_reach_a_threshold_that_may_be_met_but_not_one_that_must_be_passed():
    same = np.full(1000, 1e-17)
    assert p_value(same, 0.0, at_threshold=True) < 0.01
    assert p_value(same, 0.0, at_threshold=False) == 1.0


def test_a_metric_undefined_too_often_has_no_interval():
    values = np.ones(100)
    values[:10] = np.nan
    assert percentile_interval(values, 0.95) == (1.0, 1.0)
    values[10] = np.nan
    assert percentile_interval(values, 0.95) is None
    assert p_value(values, 0.0, at_threshold=True) is None
    assert percentile_interval(np.empty(0), 0.95) is None
