"""The comparison with the best champion so far: when there is one, on which rows, and what it decides."""

from dataclasses import replace

import numpy as np
import pytest

from models.judge.decide import judge
from models.judge.evidence import Evidence
from models.judge.rivals import against_best
from models.metrics.metrics import METRICS
from models.project_spec.judge import Judge

RULES, AUC = Judge(resamples=200), METRICS["roc_auc"]


def evidence(best=1.6, ours=1.2, num=800):
    rng = np.random.default_rng(0)
    target, common = rng.integers(0, 2, num), rng.normal(size=num)
    models = [target * signal + 0.8 * common + 0.6 * rng.normal(size=num) for signal in (ours, 1.2, best)]
    chances = [1 / (1 + np.exp(-each)) for each in models]
    return Evidence("binary", target, chances[0], chances[1], chances[2], best_id="1")


def test_a_challenger_as_good_as_the_champion_is_refused_if_it_is_worse_than_the_best():
    verdict = judge(evidence(), RULES, AUC)
    assert [gate.name for gate in verdict.failed] == ["best"]
    assert "not shown to be no worse than the best champion so far (version 1, roc_auc" in verdict.failed[0].reason
    assert not verdict.is_best
    assert verdict.best.num_samples == 800


def test_one_as_good_is_promoted_and_only_a_better_one_becomes_the_best():
    equal, better = (judge(evidence(best=1.2, ours=signal), RULES, AUC) for signal in (1.2, 2.0))
    assert (equal.promoted, equal.is_best) == (True, False)
    assert (better.promoted, better.is_best) == (True, True)
    first = judge(replace(evidence(), champion=None, best=None), RULES, AUC)
    assert first.is_best


def test_rows_that_it_knows_do_not_count_and_too_few_are_no_comparison():
    whole = evidence()
    some = replace(whole, best_counts=np.arange(800) < 300)
    assert against_best(some, RULES, AUC).num_samples == 300
    assert against_best(replace(whole, best_counts=np.arange(800) < 20), RULES, AUC) is None
    assert against_best(replace(whole, clusters=np.arange(800) // 300), RULES, AUC) is None
    assert against_best(whole, Judge(mode="superiority"), AUC) is None


@pytest.mark.parametrize("test", ["bootstrap", "mcnemar"])
def test_a_named_margin_is_that_of_the_champion(test):
    found = against_best(evidence(), Judge(resamples=200, margin=0.5, test=test), METRICS["accuracy"])
    assert found.test_set_margin is None
    assert found.difference.reached
