"""Slices: what is tested, and what is pooled."""

import numpy as np
import pytest

from models.judge.evidence import Evidence
from models.judge.slices import LEAST_EXAMPLES, MOST_VALUES, judge_slices, without_rare
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Judge

RULES = Judge(resamples=100)


def evidence(column, champion_noise=1.0):
    rng = np.random.default_rng(0)
    target = rng.normal(size=len(column))
    champion = target + rng.normal(0, champion_noise, len(column))
    return Evidence("regression", target, target + rng.normal(0, 1.0, len(column)), champion, slices={"col": column})


def test_small_slices_are_shown_but_not_tested():
    column = np.array(["big"] * 200 + ["small"] * (LEAST_EXAMPLES - 1))
    big, small = judge_slices(evidence(column), RULES, METRICS["mae"])
    assert (big.value, big.num_samples, big.note) == ("big", 200, "")
    assert big.difference.low <= big.difference.value <= big.difference.high
    assert small.challenger.value is not None
    assert small.p_holm is None
    assert "not tested" in small.note


def test_rare_values_of_a_long_column_are_pooled():
    found = judge_slices(evidence(np.arange(600) % 100), RULES, METRICS["mae"])
    assert len(found) == MOST_VALUES + 1
    assert found[-1].value == "other values (50)"
    assert sum(each.num_samples for each in found) == 600


def test_a_slice_of_one_class_has_no_roc_auc_and_is_not_tested():
    target = np.r_[np.zeros(60, int), np.arange(60) % 2]
    prediction = np.random.default_rng(0).random(120)
    given_evidence = Evidence("binary", target, prediction, prediction, slices={"half": np.arange(120) // 60})
    one_class, both = judge_slices(given_evidence, RULES, METRICS["roc_auc"])
    assert one_class.challenger.value is None
    assert "undefined" in one_class.note
    assert both.p_holm == 1.0


def test_values_of_few_rows_are_one_slice_without_names():
    column = np.array(["a"] * 20 + ["b", "b", "c"], object)
    (values,) = without_rare({"town": column}, 10).values()
    assert [*np.unique(values, return_counts=True)[0]] == ["a", "values of fewer than 10 rows"]
    assert sum(values == "a") == 20


def test_many_slices_without_a_change_seldom_raise_an_alarm():
    alarms = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        target = rng.normal(size=1000)
        models = [target + rng.normal(size=1000) for _ in range(2)]
        given_evidence = Evidence("regression", target, *models, slices={"col": np.arange(1000) % 20})
        alarms += any(each.lost for each in judge_slices(given_evidence, RULES, METRICS["mae"]))
    assert alarms <= 1


@pytest.mark.parametrize(("num_clusters", "tested"), [(1, False), (4, False), (5, True)])
def test_a_slice_of_few_clusters_is_not_tested(num_clusters: int, tested: bool):
    """Its resamples are all alike: any loss at all would be certain."""
    column = np.array(["a"] * 200)
    found = evidence(column, champion_noise=0.5)
    found = Evidence("regression", found.target, found.challenger, found.champion, slices=found.slices,
                     clusters=np.arange(200) % num_clusters)  # fmt: skip
    (one,) = judge_slices(found, RULES, METRICS["mae"])
    assert one.lost is tested
    assert (one.p_holm is not None) is tested
    assert ("clusters" in one.note) is not tested
