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


@pytest.mark.parametrize("margin", [0.0, None])
def test_copies_of_the_test_rows_make_no_test_sharper(margin):
    """By McNemar's test equal models were told apart in 15 % of draws with each row twice, in 36 % with it four times.

    The same examples, each four times, say no more; the bootstrap of units and the test differ by their approximations.
    """
    rng, rules = np.random.default_rng(0), Judge(test="mcnemar", margin=margin, resamples=500)
    target = rng.integers(0, 2, 300)
    models = [np.where(rng.random(300) < share, target, 1 - target) * 0.8 + 0.1 for share in (0.8, 0.78)]
    single, four = (
        judge(
            Evidence(
                "binary",
                *(np.repeat(each, times) for each in (target, *models)),
                clusters=np.repeat(np.arange(300), times) if times > 1 else None,
            ),
            rules,
            METRICS["accuracy"],
        )
        for times in (1, 4)
    )
    assert four.difference.low == pytest.approx(single.difference.low, abs=0.01)
    assert four.difference.high == pytest.approx(single.difference.high, abs=0.01)
    assert (four.test_set_margin or 0.0) == pytest.approx(single.test_set_margin or 0.0, abs=0.01)
