"""Differences between models: sign, interval and what counts as reached."""

import math

import numpy as np
import pytest

from models.judge.comparison import (
    Threshold,
    effective_units,
    mcnemar_difference,
    mcnemar_resolvable_loss,
    resample_models,
)
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


@pytest.mark.parametrize(
    ("num_clusters", "repeats"),
    [(5, 100), *(pytest.param(number, 3000, marks=pytest.mark.soak) for number in (5, 8, 10, 12))],
)
def test_few_clusters_show_a_gain_that_is_none_in_at_most_4_of_100_verdicts(num_clusters, repeats):
    rng, reached = np.random.default_rng(1), 0
    for repeat in range(repeats):
        day = np.repeat(np.arange(num_clusters), rng.integers(5, 40, num_clusters))
        champion = 5 + np.abs(rng.normal(size=len(day)))
        challenger = champion + rng.normal(0, 0.5, len(day)) + rng.normal(0, 0.3, num_clusters)[day]
        models = {"challenger": challenger, "champion": champion}
        result = resample_models(METRICS["mae"], np.zeros(len(day)), models, 200, repeat, day)
        reached += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    assert reached / repeats <= 0.04


def one_giant_group(rng):
    return np.r_[np.full(200, 0), 1 + np.arange(200)]


def days_of_very_unequal_size(rng):
    return np.repeat(np.arange(10), np.maximum(1, (40 * np.exp(rng.normal(0, 2, 10))).astype(int)))


@pytest.mark.parametrize(
    ("clusters", "repeats"),
    [
        (one_giant_group, 100),
        *(pytest.param(each, 1500, marks=pytest.mark.soak) for each in (one_giant_group, days_of_very_unequal_size)),
    ],
)
def test_units_of_very_unequal_size_hold_both_rates(clusters, repeats):
    rng, better, passed = np.random.default_rng(55), 0, 0
    for repeat in range(repeats):
        unit = clusters(rng)
        champion = 5 + 0.1 * np.abs(rng.normal(size=len(unit)))
        challenger = champion + rng.normal(0, 0.5, len(unit)) + rng.normal(0, 0.3, unit.max() + 1)[unit]
        models = {"challenger": challenger, "champion": champion}
        result = resample_models(METRICS["mae"], np.zeros(len(unit)), models, 200, repeat, unit)
        better += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
        margin = result.resolvable_loss("champion", 0.95)
        passed += result.difference("champion", Threshold(-margin, strict=False), 0.95).reached
    assert better / repeats <= 0.04
    assert passed / repeats >= 0.8


def test_units_count_by_their_size():
    assert effective_units(np.full(12, 7)) == pytest.approx(12)
    assert effective_units(np.bincount(one_giant_group(None))) == 5
    assert effective_units(np.array([3, 1])) == 2


def accuracy_case(rng, loss):
    """A target and two classifiers that agree on most of 300 examples; the challenger's accuracy is lower by `loss`."""
    target = rng.integers(0, 2, 300)
    right = rng.random(300) < 0.85
    again = np.where(rng.random(300) < 0.3, rng.random(300) < 0.85, right) & (rng.random(300) >= loss / 0.85)
    return target, *(np.where(each, target, 1 - target).astype(float) for each in (again, right))


def auc_case(rng, loss):
    """The same for ROC AUC: the challenger ranks a share of the examples at random."""
    target = rng.integers(0, 2, 300)
    common, own, noise = rng.normal(size=(3, 300))
    scores = target * 0.95 + 0.8 * common + 0.6 * own, target * 0.95 + 0.8 * common + 0.6 * rng.normal(size=300)
    challenger = np.where(rng.random(300) < loss / 0.12, 3 * noise, scores[0])
    return target, challenger, scores[1]


def mae_case(rng, loss):
    """The same for a mean absolute error with rare large errors."""
    errors = np.abs(rng.standard_t(3, size=(2, 300))) + rng.exponential(2, size=300)
    return np.zeros(300), errors[0] + loss, errors[1]


CASES = {"accuracy": accuracy_case, "roc_auc": auc_case, "mae": mae_case}


@pytest.mark.parametrize(
    ("metric", "test", "repeats"),
    [
        # All metrics are resampled by the same code: one of them is enough every day.
        ("roc_auc", "bootstrap", 40),
        ("accuracy", "mcnemar", 100),
        *(pytest.param(name, "bootstrap", 1500, marks=pytest.mark.soak) for name in CASES),
        pytest.param("accuracy", "mcnemar", 1500, marks=pytest.mark.soak),
    ],
)
def test_by_the_default_margin_an_equal_model_passes_in_80_of_100_loops_and_one_far_worse_in_none(
    metric, test, repeats
):
    rng, passed, margins = np.random.default_rng(3), {}, []
    for worse_by in (0, 3):
        loss, passed[worse_by] = worse_by * float(np.mean(margins or [0.0])), 0
        for repeat in range(repeats):
            target, challenger, champion = CASES[metric](rng, loss)
            if test == "mcnemar":
                margins.append(mcnemar_resolvable_loss(target, challenger, champion, 0.95))
                allowed = Threshold(-margins[-1], strict=False)
                difference = mcnemar_difference(target, challenger, champion, allowed, 0.95)
            else:
                models = {"challenger": challenger, "champion": champion}
                result = resample_models(METRICS[metric], target, models, 300, repeat)
                margins.append(result.resolvable_loss("champion", 0.95))
                difference = result.difference("champion", Threshold(-margins[-1], strict=False), 0.95)
            passed[worse_by] += difference.reached
    assert min(margins) > 0
    assert passed[0] / repeats >= 0.8
    assert passed[3] / repeats <= 0.025


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


def test_two_models_without_an_error_are_no_proof_of_none():
    target = np.arange(86) % 2
    models = {"challenger": target * 0.9, "champion": target * 0.8, "baseline": np.full(86, 0.4)}
    result = resample_models(METRICS["accuracy"], target, models, 200)
    assert result.estimate("challenger", 0.95).low == pytest.approx(0.958, abs=1e-3)
    even = result.difference("champion", Threshold(-0.01, strict=False), 0.95)
    assert (even.low, even.value, even.high) == pytest.approx((-0.042, 0, 0.042), abs=1e-3)
    assert even.reached
    assert not result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
    assert result.resolvable_loss("champion", 0.95) == pytest.approx(1 - (0.025 * 0.13) ** (1 / 86), abs=1e-6)
    again = resample_models(METRICS["accuracy"], target, {**models, "champion": models["challenger"]}, 200)
    assert again.difference("champion", Threshold(0.0, strict=False), 0.95).low == 0.0


@pytest.mark.parametrize(("positives", "reached"), [(4, False), (20, True)])
def test_a_perfect_rank_of_few_positives_is_not_shown_to_beat_a_constant(positives, reached):
    target = (np.arange(100) < positives).astype(int)
    models = {"challenger": target + np.linspace(0, 0.1, 100), "baseline": np.full(100, 0.1)}
    result = resample_models(METRICS["roc_auc"], target, models, 200)
    assert result.difference("baseline", Threshold(0.0, strict=True), 0.95).reached is reached
    assert result.estimate("baseline", 0.95).high == 0.5


def ranked_case(rng, num=2200):
    """Two equally good scores of a class of one in ten, which share most of what they know."""
    target = (rng.random(num) < 0.1).astype(np.int64)
    common = rng.normal(size=num) + 1.2 * target
    return target, *(common + 0.7 * rng.normal(size=num) for _ in range(2))


def heavy_case(rng):
    """Two equally good predictions with rare large errors, at the fewest rows that a closed form takes in a slice."""
    errors = np.abs(rng.standard_t(3, size=(2, 1000))) + rng.exponential(2, size=1000)
    return np.zeros(1000), *errors


@pytest.mark.parametrize(
    ("metric", "case", "repeats"),
    [
        ("roc_auc", ranked_case, 120),
        ("rmse", heavy_case, 400),
        *(
            pytest.param(*row, 3000, marks=pytest.mark.soak)
            for row in (("roc_auc", ranked_case), ("mae", heavy_case), ("rmse", heavy_case))
        ),
    ],
)
def test_a_closed_form_holds_the_rates_of_the_bootstrap(metric, case, repeats):
    rng, better, passed, estimates = np.random.default_rng(7), 0, 0, []
    for repeat in range(repeats):
        target, challenger, champion = case(rng)
        models = {"challenger": challenger, "champion": champion}
        result = resample_models(METRICS[metric], target, models, 1000, repeat, least_rows=1000)
        better += result.difference("champion", Threshold(0.0, strict=True), 0.95).reached
        margin = result.resolvable_loss("champion", 0.95)
        passed += result.difference("champion", Threshold(-margin, strict=False), 0.95).reached
        estimates.append(result.estimate("challenger", 0.95))
    true = np.mean([estimate.value for estimate in estimates])
    covered = np.mean([estimate.low <= true <= estimate.high for estimate in estimates])
    assert better / repeats <= 0.045
    assert passed / repeats >= 0.8
    assert covered >= 0.91


@pytest.mark.parametrize(
    ("change", "is_closed"),
    [
        ({}, True),
        ({"weights": np.random.default_rng(1).uniform(0.5, 2, 24_000)}, True),
        ({"weights": np.r_[np.full(2000, 50.0), np.ones(22_000)]}, False),
        ({"clusters": np.arange(24_000) // 2}, False),
        ({"metric": METRICS["pr_auc"]}, False),
        ({"least_rows": 30_000}, False),
    ],
)
def test_a_closed_form_stands_for_resamples_of_many_rows_that_count_alike_and_are_apart(change, is_closed):
    target, challenger, champion = ranked_case(np.random.default_rng(0), 24_000)
    arguments = {"metric": METRICS["roc_auc"], "resamples": 100, **change}
    result = resample_models(target=target, models={"challenger": challenger, "champion": champion}, **arguments)
    means = [result.resampled[name].mean() == pytest.approx(value, abs=1e-12) for name, value in result.values.items()]
    assert means == [is_closed, is_closed]


def test_a_rare_class_of_many_rows_is_resampled():
    target, challenger, champion = ranked_case(np.random.default_rng(0), 24_000)
    rare = np.where(np.cumsum(target) <= 150, target, 0)
    result = resample_models(METRICS["roc_auc"], rare, {"challenger": challenger, "champion": champion}, 100)
    assert result.resampled["challenger"].mean() != pytest.approx(result.values["challenger"], abs=1e-12)
