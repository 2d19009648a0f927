"""The choice among models: the goal decides, and within its noise the log loss."""

import math

import numpy as np
import pytest

from models.metrics.metrics import METRICS
from models.training.checkpoints.state import Progress
from models.training.model_choice import ValidationScore, choose, is_better, record, score, standard_error


def test_better_knows_nan() -> None:
    assert is_better(1.0, math.nan, "maximize")
    assert not is_better(math.nan, 1.0, "maximize")
    assert is_better(1.0, 2.0, "minimize")
    assert not is_better(2.0, 2.0, "maximize")


def test_within_the_noise_the_log_loss_decides() -> None:
    first, later, worse = (
        ValidationScore(0.92, 0.02, 0.40),
        ValidationScore(0.917, 0.02, 0.18),
        ValidationScore(0.80, 0.02, 0.10),
    )
    assert choose([first, later, worse], "maximize") == 1
    assert choose([later, first], "maximize") == 0


def test_without_a_log_loss_only_the_goal_decides() -> None:
    assert choose([ValidationScore(3.0), ValidationScore(2.0), ValidationScore(2.0)], "minimize") == 1
    assert choose([ValidationScore(math.nan), ValidationScore(2.0)], "minimize") == 1


def test_a_goal_that_creeps_away_from_the_chosen_model_takes_over() -> None:
    progress = Progress()
    series = [ValidationScore(0.80 + 0.004 * step, 0.01, 0.3 + 0.01 * step) for step in range(5)]
    chosen = [record(progress, each, "maximize", epoch) for epoch, each in enumerate(series, 1)]
    assert chosen == [True, True, True, True, True]
    slower = Progress()
    series = [ValidationScore(0.80 + 0.0005 * step, 0.01, 0.3 + 0.01 * step) for step in range(4)]
    assert [record(slower, each, "maximize", epoch) for epoch, each in enumerate(series, 1)] == [
        True,
        False,
        False,
        False,
    ]
    assert (slower.best_epoch, slower.improved_epoch) == (1, 4)


def test_the_standard_error_is_that_of_a_share() -> None:
    rng = np.random.default_rng(0)
    target, prediction = rng.integers(0, 2, 20_000), rng.random(20_000)
    assert standard_error(METRICS["accuracy"], target, prediction) == pytest.approx(0.5 / math.sqrt(20_000), rel=0.4)


def test_a_goal_that_is_proper_needs_no_log_loss() -> None:
    target, prediction = np.array([0, 1, 1, 0]), np.array([0.2, 0.7, 0.6, 0.4])
    assert math.isnan(score(METRICS["log_loss"], "binary", target, prediction).log_loss)
    assert math.isnan(score(METRICS["mae"], "regression", target.astype(float), prediction).log_loss)
    assert score(METRICS["roc_auc"], "binary", target, prediction).log_loss == pytest.approx(0.4004, abs=1e-3)


def test_the_rule_keeps_no_model_without_positives_and_loses_nothing_of_the_goal() -> None:
    """A stage of boosting: the scores spread as rounds are added, while the ranking hardly changes."""
    zero_recall, goal_loss = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        num = 4000
        signal = rng.normal(size=num)
        target = (rng.random(num) < 1 / (1 + np.exp(2.6 - 1.8 * signal))).astype(np.int64)
        scores, tests = [], []
        for step in range(1, 11):
            logit = -1.9 + (1.8 * signal - 0.7) * step / 10 + rng.normal(scale=0.25, size=num)
            prediction = 1 / (1 + np.exp(-logit))
            scores.append(score(METRICS["roc_auc"], "binary", target[:400], prediction[:400]))
            tests.append((METRICS["roc_auc"].value(target[400:], prediction[400:]), prediction[400:]))
        auc, prediction = tests[choose(scores, "maximize")]
        zero_recall += bool((prediction <= 0.5).all())
        goal_loss.append(max(value for value, _ in tests) - auc)
    assert zero_recall == 0
    assert np.mean(goal_loss) < 0.005
