"""The decision that is best for a goal, by the probabilities alone."""

import itertools

import numpy as np
import pytest

from models.metrics.classification import ClassScores, at_threshold
from models.metrics.decisions import best_decision, class_scores, has_own_decision, label_thresholds
from models.metrics.metrics import METRICS


def drawn(seed: int, num: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """True classes and calibrated probabilities of three classes, of which one is usual."""
    rng = np.random.default_rng(seed)
    power = np.exp(1.5 * rng.normal(size=(num, 3)) + [2.0, 0.0, -0.3])
    prediction = power / power.sum(axis=1, keepdims=True)
    return (rng.random((num, 1)) > np.cumsum(prediction, axis=1)).sum(axis=1), prediction


@pytest.mark.parametrize("seed", range(4))
def test_scores_for_f1_reach_the_best_weights_that_the_labels_themselves_find(seed: int):
    """The weights of a grid are chosen on the test rows, so they see more than a decision may."""
    target, prediction = drawn(seed)
    scores = class_scores("f1", prediction[:2000])
    assert scores is not None
    reached = METRICS["f1"].at(scores).value(target[2000:], prediction[2000:])
    grid = [
        ClassScores(np.array([1.0, *rest]), np.zeros(3)) for rest in itertools.product(np.geomspace(1, 12, 8), repeat=2)
    ]
    best = max(METRICS["f1"].at(each).value(target[2000:], prediction[2000:]) for each in grid)
    assert reached >= best - 0.015
    assert reached > METRICS["f1"].value(target[2000:], prediction[2000:])


def test_balanced_accuracy_divides_by_the_shares_and_accuracy_takes_the_likeliest():
    _, prediction = drawn(0)
    scores = class_scores("balanced_accuracy", prediction)
    assert scores is not None
    np.testing.assert_allclose(scores.weights * prediction.mean(axis=0), 1 / 3)
    assert class_scores("accuracy", prediction) is None
    assert best_decision("log_loss", "multiclass", prediction) == 0.5
    assert not has_own_decision(METRICS["accuracy"], "multiclass")
    assert has_own_decision(METRICS["recall"], "multiclass")
    assert not has_own_decision(METRICS["recall"], "binary"), "perfect for a model that predicts one class only"


def test_a_weight_of_two_decides_as_the_row_twice():
    _, prediction = drawn(1, 300)
    weight = np.random.default_rng(0).integers(0, 3, 300).astype(np.float64)
    twice = np.repeat(prediction, weight.astype(int), axis=0)
    for goal in ("f1", "balanced_accuracy"):
        one, other = class_scores(goal, prediction, weight), class_scores(goal, twice)
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9)
        np.testing.assert_allclose(one.offsets, other.offsets, rtol=1e-9)
    labels = best_decision("f1", "multilabel", prediction, weight)
    np.testing.assert_allclose(labels, best_decision("f1", "multilabel", twice))


@pytest.mark.parametrize("goal", ["f1", "f1_micro"])
def test_thresholds_of_labels_hold_for_probabilities_that_are_too_high(goal: str):
    """As those of a model with balanced class weights: they are put back on its own scale."""
    rng = np.random.default_rng(2)
    too_high = np.array([2.5, 3.0])
    logits = 1.5 * rng.normal(size=(6000, 2)) - too_high
    target = (rng.random((6000, 2)) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    raised = 1 / (1 + np.exp(-(logits + too_high)))
    metric = METRICS[goal] if goal == "f1_micro" else METRICS[goal].of([_Label("y"), _Label("z")])
    values = []
    for prediction in (1 / (1 + np.exp(-logits)), raised):
        thresholds = label_thresholds(goal, target[:3000], prediction[:3000])
        values.append(metric.at(thresholds).value(target[3000:], prediction[3000:]))
        assert values[-1] > metric.value(target[3000:], prediction[3000:]) + 0.02
    assert values[1] == pytest.approx(values[0], abs=0.01)


def test_a_decision_moves_probabilities_so_that_the_highest_or_one_half_decides():
    prediction = np.array([[0.6, 0.4], [0.9, 0.1]])
    assert at_threshold(prediction, ClassScores(np.array([1.0, 2.0]), np.zeros(2))).argmax(axis=1).tolist() == [1, 0]
    assert (at_threshold(prediction, np.array([0.7, 0.3])) > 0.5).tolist() == [[False, True], [True, False]]


class _Label:
    scale, quantile, horizon = 1.0, None, None

    def __init__(self, name: str) -> None:
        self.name = name
