"""Calibration helps where it is kept, and is seldom kept where there is nothing to help."""

import numpy as np
import pytest

from models.folds import Units
from models.metrics.calibration import best_threshold, calibration_that_helps, fit_calibration, logits_of
from models.metrics.metrics import METRICS, resolve_metric


def binary(seed: int, num: int, slope: float = 1.0, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities whose logits are `slope` times the true ones plus `shift`."""
    rng = np.random.default_rng(seed)
    logit = -1.5 + 1.5 * rng.normal(size=num)
    target = (rng.random(num) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    return target, 1 / (1 + np.exp(-(slope * logit + shift)))


def multiclass(seed: int, num: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(num, 4)) * 1.5
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    target = (chances.cumsum(axis=1) > rng.random(num)[:, None]).argmax(axis=1)
    moved = np.exp(slope * logits)
    return target, moved / moved.sum(axis=1, keepdims=True)


def test_slope_and_offset_are_recovered():
    calibration = fit_calibration(*binary(0, 20_000, slope=2.0, shift=1.0))
    assert calibration.slope == pytest.approx(0.5, abs=0.03)
    assert calibration.offsets == pytest.approx((0.0, -0.5), abs=0.08)


@pytest.mark.parametrize("problem", [binary(1, 1500, slope=2.5), multiclass(1, 1500, 2.5)])
def test_overconfident_predictions_get_better_on_other_rows(problem):
    target, prediction = problem
    tested = calibration_that_helps(target[:1000], prediction[:1000])
    assert tested.calibration is not None
    assert tested.log_loss_after < tested.log_loss
    assert tested.ece_after < tested.ece
    before, after = (METRICS["log_loss"].value(target[1000:], each[1000:])
                     for each in (prediction, tested.calibration.apply(prediction)))  # fmt: skip
    assert after < before


@pytest.mark.parametrize("num", [200, 1000])
def test_calibrated_predictions_are_changed_in_at_most_5_percent(num):
    changed = [calibration_that_helps(*binary(seed, num)).calibration is not None for seed in range(60)]
    assert np.mean(changed) <= 0.05


def test_few_examples_are_left_alone():
    assert calibration_that_helps(*binary(0, 99)) is None


def test_certain_predictions_stay_finite():
    target = np.array([0, 1] * 100)
    calibration = fit_calibration(target, target.astype(float))
    assert np.isfinite(calibration.apply(target.astype(float))).all()
    assert np.isfinite(logits_of(np.array([0.0, 1.0]))).all()


def test_very_sure_predictions_are_calibrated_by_their_whole_logits():
    """Logits 25 times too large: cut at a probability of 1e-12, the slope was .064 where .04 is right."""
    target, prediction = binary(4, 5000)
    logit = 25 * np.log(prediction / (1 - prediction))
    both = np.stack([1 / (1 + np.exp(logit)), 1 / (1 + np.exp(-logit))], axis=1)
    calibration = calibration_that_helps(target, both).calibration
    assert calibration.slope == pytest.approx(1 / 25, rel=0.1)
    assert METRICS["log_loss"].value(target, calibration.apply(both)) == pytest.approx(
        METRICS["log_loss"].value(target, prediction), abs=0.002
    )


@pytest.mark.parametrize("goal", ["f1", "balanced_accuracy", "cost_1_10"])
def test_the_threshold_serves_the_goal(goal):
    target, prediction = binary(0, 21_000)
    metric = resolve_metric(goal, "binary", None)
    threshold = best_threshold(metric.name, prediction[:1000])
    grid = np.linspace(0.02, 0.6, 60)
    values = [metric.at(each).value(target[1000:], prediction[1000:]) for each in grid]
    best = max(values) if metric.direction == "maximize" else min(values)
    at = metric.at(threshold).value(target[1000:], prediction[1000:])
    assert at == pytest.approx(best, abs=0.012)
    assert abs(metric.value(target[1000:], prediction[1000:]) - best) > 0.03


def test_other_goals_keep_one_half():
    for name in ("accuracy", "recall", "log_loss"):
        assert best_threshold(name, np.array([0.1, 0.2])) == 0.5


@pytest.mark.parametrize("goal", ["roc_auc", "pr_auc"])
def test_a_goal_of_ranking_predicts_a_rare_class_as_often_as_it_occurs(goal):
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(3.2 - 0.8 * rng.normal(size=20_000)))
    target = (rng.random(20_000) < chance).astype(np.int64)
    threshold = best_threshold(goal, chance[:1000])
    assert (chance > 0.5).mean() < 0.001
    assert (chance > threshold).mean() == pytest.approx(target.mean(), rel=0.25)


@pytest.mark.parametrize("goal", ["roc_auc", "f1"])
def test_a_threshold_does_not_divide_equal_predictions(goal):
    tied = np.repeat([0.3, 0.02], [30, 70])
    threshold = best_threshold(goal, tied)
    assert 0.02 < threshold < 0.3
    noisy = tied + np.repeat([3e-8, 0.0, -2e-9, 0.0], [1, 29, 1, 69])
    assert best_threshold(goal, noisy) == pytest.approx(threshold, abs=1e-6)
    assert best_threshold("roc_auc", np.full(50, 0.1)) == 0.5


def test_weight_2_is_the_example_twice():
    target, prediction = binary(0, 800, slope=2.0, shift=1.0)
    weight = np.where(target == 1, 2.0, 1.0) * (np.arange(800) % 7 > 0)
    repeated = np.repeat(np.arange(800), weight.astype(int))
    weighted = fit_calibration(target, prediction, weight)
    again = fit_calibration(target[repeated], prediction[repeated])
    assert weighted.slope == pytest.approx(again.slope, rel=1e-4)
    assert weighted.offsets == pytest.approx(again.offsets, abs=1e-4)
    for goal in ("f1", "balanced_accuracy", "roc_auc", "cost_1_5", "accuracy"):
        threshold = best_threshold(goal, prediction, weight)
        assert threshold == pytest.approx(best_threshold(goal, prediction[repeated]), rel=1e-9)
    units = Units(np.arange(800))
    tests = [
        calibration_that_helps(target, prediction, 0, weight, units),
        calibration_that_helps(target[repeated], prediction[repeated], 0, None, units.at(repeated)),
    ]
    assert tests[0][1:] == pytest.approx(tests[1][1:], rel=0.02)


def test_without_weight_there_is_no_calibration():
    target, prediction = binary(0, 800, slope=2.0)
    assert calibration_that_helps(target, prediction, weight=np.zeros(800)) is None
    assert best_threshold("f1", prediction, np.zeros(800)) == 0.5


def test_noise_of_few_units_is_kept_in_at_most_5_percent():
    """The rows of a unit share an effect, so 1,000 rows of 20 units say little: counted by rows, 18 % were kept."""
    kept = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        unit = np.repeat(np.arange(20), 50)
        logit, effect = rng.normal(size=(2, 20))[:, unit] + [rng.normal(size=1000), np.zeros(1000)]
        target = (rng.random(1000) < 1 / (1 + np.exp(-logit - effect))).astype(np.int64)
        prediction = 1 / (1 + np.exp(-0.86 * logit))  # the mean over all units' effects
        kept += calibration_that_helps(target, prediction, seed, units=Units(unit)).calibration is not None
    assert kept <= 2
