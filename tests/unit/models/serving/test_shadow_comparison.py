"""A shadow beside what was answered: agreement on all rows, the metric on those with a label."""

import numpy as np
import pytest

from models.metrics.metrics import METRICS
from models.serving.shadow_comparison import LEAST_LABELS, DecisionThresholds, compare

NONE = np.full(4, np.nan)


def test_no_rows_compare_to_nothing():
    found = compare("2", METRICS["roc_auc"], np.zeros(0), np.zeros(0), np.zeros(0))
    assert (found.num_rows, found.agreement, found.distance, found.difference) == (0, None, None, None)


def test_without_labels_there_is_agreement_and_distance():
    answered, shadow = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0.1, 0.6, 0.6, 0.7])
    found = compare("2", METRICS["roc_auc"], answered, shadow, NONE)
    assert (found.agreement, found.num_labelled, found.difference) == (0.75, 0, None)
    assert found.distance == pytest.approx(0.1)


def test_each_version_decides_at_its_own_threshold():
    answered, shadow = np.array([0.08, 0.12, 0.08, 0.3]), np.array([0.12, 0.15, 0.2, 0.25])
    thresholds = DecisionThresholds(np.array([0.1, 0.1, 0.05, 0.5]), 0.22)
    found = compare("2", METRICS["roc_auc"], answered, shadow, NONE, thresholds)
    assert found.agreement == 0.25  # no, yes, yes, no against no, no, no, yes
    assert found.distance == pytest.approx(np.abs(answered - shadow).mean())
    label = np.tile([0.0, 1.0, 1.0, 0.0], 10)
    rows = np.tile(answered, 10), np.tile(shadow, 10)
    decided = compare("2", METRICS["f1"], *rows, label, DecisionThresholds(np.tile(thresholds.answered, 10), 0.22))
    assert (decided.answered, decided.shadow) == (1.0, 0.0)


def test_numbers_have_no_classes_to_agree_on():
    found = compare("2", METRICS["mae"], np.array([1.0, 2.0]), np.array([2.0, 4.0]), NONE[:2])
    assert (found.agreement, found.distance) == (None, 1.5)


def test_with_labels_it_says_which_was_right_and_how_sure_that_is():
    rng = np.random.default_rng(0)
    label = (rng.random(400) < 0.5).astype(float)
    good = np.clip(label * 0.6 + rng.random(400) * 0.4, 0, 1)
    found = compare("2", METRICS["roc_auc"], rng.random(400), good, label)
    assert found.difference is not None
    assert found.difference.low is not None
    assert found.difference.low > 0.3
    assert (found.num_labelled, found.shadow) == (400, 1.0)


def test_many_classes_and_few_labels():
    answered = np.array([[0.8, 0.1, 0.1]] * (LEAST_LABELS - 1))
    label = np.zeros(len(answered))
    found = compare("2", METRICS["accuracy"], answered, answered[:, ::-1], label)
    assert (found.agreement, found.num_labelled, found.difference) == (0.0, LEAST_LABELS - 1, None)


def test_labels_of_one_class_say_nothing_of_a_ranking():
    scores = np.linspace(0, 1, 50)
    assert compare("2", METRICS["roc_auc"], scores, scores, np.ones(50)).difference is None


def test_texts_are_their_own_labels_and_cost_what_they_cost():
    rng = np.random.default_rng(0)
    cost = 2 + rng.random(60)
    found = compare("2", METRICS["bits_per_char"], cost, cost - 0.5, np.zeros(60))
    assert (found.agreement, found.num_labelled, found.metric) == (None, 60, "bits_per_char")
    assert found.shadow == pytest.approx(cost.mean() - 0.5)
    assert found.difference is not None
    assert found.difference.high is not None
    assert found.difference.value == pytest.approx(-0.5)


def test_scores_of_a_ranking_have_a_distance_and_no_metric_for_the_log_has_no_groups():
    scores = np.arange(40.0)
    found = compare("2", METRICS["ndcg"], scores, scores + 1, np.ones(40))
    assert (found.distance, found.agreement, found.num_labelled, found.answered) == (1.0, None, 40, None)
