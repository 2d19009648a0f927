"""Differences between models: sign, interval and what counts as reached."""

import math

import numpy as np
import pytest

from models.judge.comparison import Threshold, mcnemar_difference, resample_models
from models.metrics.metrics import METRICS


def compared(challenger_error, champion_error, num=300):
    rng = np.random.default_rng(0)
    target = rng.normal(size=num)
    models = {
        "challenger": target + rng.normal(0, challenger_error, num),
        "champion": target + rng.normal(0, champion_error, num),
    }
    return resample_models(METRICS["mae"], target, models, resamples=200)


def test_the_difference_is_in_the_metrics_unit_and_gains_are_positive_when_better():
    result = compared(0.5, 1.0)
    difference = result.difference("champion", Threshold(0.0, strict=True), 0.95)
    assert difference.value == pytest.approx(result.values["challenger"] - result.values["champion"])
    assert difference.low < difference.value < difference.high < 0
    assert (result.gains("champion") > 0).all()
    assert difference.reached


def test_loss_is_significant_only_beyond_what_is_allowed():
    result = compared(1.0, 0.5)
    assert result.loss_p_value("champion", 0.0) < 1e-6
    assert result.loss_p_value("champion", 10.0) == 1.0
    assert compared(0.5, 1.0).loss_p_value("champion", 0.0) == 1.0


@pytest.mark.parametrize("num_clusters", [5, pytest.param(8, marks=pytest.mark.soak), 12])
def test_few_clusters_show_a_gain_that_is_none_in_at_most_4_of_100_verdicts(num_clusters):
    rng, reached, repeats = np.random.default_rng(1), 0, 500
    for repeat in range(repeats):
        day = np.repeat(np.arange(num_clusters), rng.integers(5, 40, num_clusters))
        champion = 5 + np.abs(rng.normal(size=len(day)))
        challenger = champion + rng.normal(0, 0.5, len(day)) + rng.normal(0, 0.3, num_clusters)[day]
        models = {"challenger": challenger, "champion": champion}
        result = resample_models(METRICS["mae"], np.zeros(len(day)), models, 200, repeat, day)
        reached += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    assert reached / repeats <= 0.04


def test_mcnemar_with_a_margin_weighs_the_distance_to_it():
    target = np.ones(200, int)
    challenger, champion = np.full(200, 0.9), np.full(200, 0.9)
    challenger[:8], champion[8:14] = 0.1, 0.1
    wide = mcnemar_difference(target, challenger, champion, Threshold(-0.1, strict=False), 0.95)
    narrow = mcnemar_difference(target, challenger, champion, Threshold(-0.02, strict=False), 0.95)
    assert wide.value == pytest.approx(-0.01)
    assert wide.reached
    assert not narrow.reached
    assert math.isclose(wide.low, narrow.low)
