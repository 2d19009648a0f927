"""Metrics of classes and probabilities against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from models.metrics.classification import reliability
from models.metrics.metrics import METRICS, metrics_for
from tests.wide import examples

CLOSE = {"rel": 1e-9, "abs": 1e-9}


@st.composite
def binary_cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num = draw(st.integers(4, 80))
    target = rng.integers(0, 2, num)
    target[:2] = [0, 1]
    prediction = np.round(rng.random(num), draw(st.integers(1, 6)))  # few digits: many ties
    weight = rng.integers(0, 4, num).astype(float) if draw(st.booleans()) else None
    if weight is not None:
        weight[:2] = 1
    return target, prediction, weight


@st.composite
def multiclass_cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num, classes = draw(st.integers(8, 60)), draw(st.integers(3, 5))
    target = rng.integers(0, classes, num)
    target[:classes] = np.arange(classes)
    prediction = np.round(rng.dirichlet(np.ones(classes), num), 2) + 1e-3
    weight = rng.random(num) + 0.1 if draw(st.booleans()) else None
    return target, prediction / prediction.sum(axis=1, keepdims=True), weight


def value(name, target, prediction, weight):
    return METRICS[name].value(target, prediction, weight)


@given(binary_cases())
@examples(40)
def test_binary_metrics_equal_scikit_learn(case):
    target, prediction, weight = case
    label = prediction > 0.5
    expected = {
        "roc_auc": sk.roc_auc_score(target, prediction, sample_weight=weight),
        "pr_auc": sk.average_precision_score(target, prediction, sample_weight=weight),
        "accuracy": sk.accuracy_score(target, label, sample_weight=weight),
        "precision": sk.precision_score(target, label, sample_weight=weight, zero_division=0),
        "recall": sk.recall_score(target, label, sample_weight=weight, zero_division=0),
        "f1": sk.f1_score(target, label, sample_weight=weight, zero_division=0),
        "log_loss": sk.log_loss(target, prediction, sample_weight=weight),
        "brier": sk.brier_score_loss(target, prediction, sample_weight=weight),
    }
    for name, reference in expected.items():
        assert value(name, target, prediction, weight) == pytest.approx(reference, **CLOSE), name


@given(multiclass_cases())
@examples(40)
def test_multiclass_metrics_equal_scikit_learn(case):
    target, prediction, weight = case
    label = prediction.argmax(axis=1)
    macro = {"sample_weight": weight, "average": "macro", "zero_division": 0}
    truth = np.eye(prediction.shape[1])[target]
    expected = {
        "accuracy": sk.accuracy_score(target, label, sample_weight=weight),
        "precision": sk.precision_score(target, label, **macro),
        "recall": sk.recall_score(target, label, **macro),
        "f1": sk.f1_score(target, label, **macro),
        "log_loss": sk.log_loss(target, prediction, sample_weight=weight),
        "brier": np.average(((prediction - truth) ** 2).sum(axis=1), weights=weight),
        # scikit-learn's own one-against-rest, class by class: its multiclass form refuses weights.
        "roc_auc": np.mean(
            [sk.roc_auc_score(target == k, prediction[:, k], sample_weight=weight) for k in range(truth.shape[1])]
        ),
        "pr_auc": sk.average_precision_score(truth, prediction, sample_weight=weight),
    }
    for name, reference in expected.items():
        assert value(name, target, prediction, weight) == pytest.approx(reference, **CLOSE), name


@given(binary_cases())
@examples(40)
def test_a_whole_number_weight_means_repeated_examples(case):
    target, prediction, weight = case
    if weight is None:
        return
    index = np.repeat(np.arange(len(target)), weight.astype(int))
    for metric in metrics_for("binary"):
        repeated = metric.value(target[index], prediction[index])
        assert metric.value(target, prediction, weight) == pytest.approx(repeated, **CLOSE), metric.name


def test_calibration_error_of_a_known_case():
    target, prediction = np.array([1, 1, 1, 0, 0]), np.array([0.9, 0.9, 0.9, 0.9, 0.1])
    # Bin of 0.9: 3 of 4 come true, gap 0.15, weight 4/5; bin of 0.1: 0 of 1, gap 0.1, weight 1/5.
    assert value("ece", target, prediction, None) == pytest.approx(0.15 * 4 / 5 + 0.1 / 5)


def test_float32_probabilities_of_exactly_one_stay_finite():
    target, prediction = np.array([0, 1]), np.array([1.0, 1.0], dtype=np.float32)
    assert math.isfinite(value("log_loss", target, prediction, None))


def test_reliability_has_a_bin_for_certainty():
    stated, observed, weight = reliability(np.array([1, 0]), np.array([1.0, 0.0]), bins=10)
    assert (stated[9], observed[9], stated[0], observed[0]) == (1.0, 1.0, 0.0, 0.0)
    assert weight.sum() == 2
    assert np.isnan(stated[1:9]).all()
