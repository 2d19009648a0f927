"""The recall of each class, its interval, and what the goal would be if a class were found as often as the others."""

import numpy as np
import pytest
from scipy.stats import binomtest

from models.judge.class_recall import class_recalls, share
from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.next_steps import next_steps
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Judge

NAMES = ("alder", "birch", "cedar")


def evidence(found, counts=(100, 100, 20), **fields):
    """Rows of three classes of which a share is found; the others are taken for the next class."""
    target = np.repeat(np.arange(3), counts)
    place = np.concatenate([np.arange(count) / count for count in counts])
    predicted = np.where(place < np.repeat(found, counts), target, (target + 1) % 3)
    return Evidence("multiclass", target, np.eye(3)[predicted] * 0.8 + 0.1, class_names=NAMES, **fields)


def test_the_least_found_class_stands_first_with_its_exact_interval():
    lowest, *others = class_recalls(evidence((0.9, 0.95, 0.5)), METRICS["accuracy"], 0.95)
    exact = binomtest(10, 20).proportion_ci(0.95)
    assert (lowest.name, lowest.num_samples, lowest.recall.value, lowest.taken_for) == ("cedar", 20, 0.5, "alder")
    assert (lowest.recall.low, lowest.recall.high) == pytest.approx((exact.low, exact.high), abs=0.01)
    assert lowest.others == pytest.approx(185 / 200)
    assert [other.name for other in others] == ["alder", "birch"]
    assert lowest.goal == pytest.approx((185 + 18.5) / 220, abs=1 / 220)
    assert all(other.goal is None for other in others)


def test_rows_without_a_named_class_have_none():
    assert class_recalls(Evidence("regression", np.arange(3), np.arange(3)), METRICS["mae"], 0.95) == []


def test_a_class_whose_rows_weigh_nothing_has_no_recall():
    rows = evidence((0.9, 0.95, 0.5), weights=np.repeat((1.0, 2.0, 0.0), (100, 100, 20)))
    assert [recall.name for recall in class_recalls(rows, METRICS["accuracy"], 0.95)] == ["alder", "birch"]


@pytest.mark.parametrize("num_rows", [1, 8])
def test_the_interval_covers_the_true_share_however_many_rows_depend_on_each_other(num_rows):
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        true = np.repeat(np.clip(rng.normal(0.7, 0.25, 30), 0, 1), num_rows)
        estimate = share(
            rng.random(30 * num_rows) < true, np.ones(30 * num_rows), np.repeat(np.arange(30), num_rows), 0.95
        )
        covered += estimate.low <= 0.678 <= estimate.high  # the mean of the clipped shares
    assert covered / 400 >= 0.94


def test_a_class_of_few_rows_that_holds_the_goal_down_is_what_a_refusal_names():
    rows = evidence((0.9, 0.95, 0.4), class_rows=(500, 400, 80))
    (*_, sentence) = next_steps(judge(rows, Judge(), METRICS["balanced_accuracy"], good_enough=0.9))
    assert "Class cedar holds balanced_accuracy down: 40% (19% to 65%) of its 20 test rows are found" in sentence
    assert "training has 80 rows of it, and 500 of another class, so more rows of class cedar" in sentence
    many = evidence((0.9, 0.95, 0.4), class_rows=(500, 400, 900))
    (*_, sentence) = next_steps(judge(many, Judge(), METRICS["balanced_accuracy"], good_enough=0.9))
    assert sentence.endswith("it lacks a column that tells it apart, as its rows are mostly taken for alder.")


def test_no_class_is_named_where_all_are_found_alike_or_the_goal_sees_no_decision():
    for found, metric in (((0.9, 0.9, 0.9), "accuracy"), ((0.9, 0.95, 0.4), "log_loss")):
        rows = evidence(found, class_rows=(500, 400, 80))
        steps = next_steps(judge(rows, Judge(), METRICS[metric], good_enough=0.99 if metric == "accuracy" else 0.0))
        assert steps
        assert not any("Class" in step for step in steps)
